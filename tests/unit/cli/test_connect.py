import argparse
from pathlib import Path

import pytest

from inferd.cli.connect import (
    add_socket_argument,
    configured_directory,
    open_client,
    serves_sample,
)
from inferd.cli.console import CommandError
from inferd.wire.requests import EmbedRequest
from tests.fakes.listener import answers, failure, listening, says, status

TEXTS = EmbedRequest(id="r", input=["a"])


@pytest.fixture(autouse=True)
def home(monkeypatch, short_dir):
    """No configuration, and no daemon in the usual places."""
    for name in ("INFERD_CONFIG", "RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(short_dir))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(short_dir))


def error_of(directory):
    """Ask for embeddings; give what is said about it."""
    with (
        pytest.raises(CommandError) as caught,
        open_client(directory, "embeddings") as it,
    ):
        it.embed(TEXTS)
    return caught.value.text, caught.value.hint


def stay_silent(sock):
    sock.recv(1)


# --- the directory ----------------------------------------------------------------------


def test_a_directory_may_be_given():
    parser = argparse.ArgumentParser()
    add_socket_argument(parser)
    assert parser.parse_args(["--directory", "/d"]).directory == Path("/d")
    assert parser.parse_args([]).directory is None


def test_the_configured_directory_is_where_a_daemon_is(short_dir):
    assert configured_directory() is None
    config = short_dir / "inferd" / "config.toml"
    config.parent.mkdir()
    config.write_text('[listen]\ndirectory = "/srv"\n')
    assert configured_directory() == Path("/srv")
    assert error_of(None)[0].startswith("no daemon answers at /srv/infer.embed.sock ")


# --- what is wrong ----------------------------------------------------------------------


def test_a_refusal_has_the_daemon_s_message(short_dir):
    path = short_dir / "infer.embed.sock"
    with listening(path, answers([failure("queue_full", "queue full")])):
        assert error_of(short_dir) == ("queue_full: queue full", "")


def test_a_daemon_that_cannot_read_a_request_may_be_an_older_one(short_dir):
    unread = failure("invalid_request", "decode: Expected `str`, got `null`", "")
    with listening(short_dir / "infer.embed.sock", answers([unread])):
        text, hint = error_of(short_dir)
    assert text == "invalid_request: decode: Expected `str`, got `null`"
    assert "older than this command" in hint


def test_a_model_that_is_not_found_has_a_hint_at_those_that_are(short_dir):
    path = short_dir / "infer.embed.sock"
    with listening(path, answers([failure("model_not_found", "no")])):
        assert error_of(short_dir) == ("model_not_found: no", "inferd model list")


def test_without_a_daemon_the_hint_is_to_start_one(short_dir):
    text, hint = error_of(short_dir)
    assert text.startswith(
        f"no daemon answers at {short_dir}/infer.embed.sock (No such"
    )
    assert hint == "inferd serve"


def test_a_daemon_without_the_service_is_distinguished_from_none(short_dir):
    dialogue = says(
        status("capabilities", backend="chat", embed=False), status("ready")
    )
    with listening(short_dir / "admin.sock", dialogue):
        assert error_of(short_dir) == (
            "the daemon serves no embeddings",
            "add a [[backend]] with a model for embeddings to its configuration",
        )


@pytest.mark.parametrize("able", [[True, False], [False, True]])
def test_a_disabled_service_is_distinguished_from_a_missing_one(short_dir, able):
    told = [status("capabilities", backend="b", embed=each) for each in able]
    with listening(short_dir / "admin.sock", says(*told, status("ready"))):
        assert error_of(short_dir) == (
            "the daemon serves no embeddings",
            "set listen.embed = true in its configuration",
        )


@pytest.mark.parametrize("leaf", ["infer.sock", "infer.v2.sock", "infer.rerank.sock"])
def test_without_admin_access_the_inference_sockets_are_tried(short_dir, leaf):
    with listening(short_dir / leaf, stay_silent):
        assert error_of(short_dir)[0] == "the daemon serves no embeddings"


@pytest.mark.parametrize("word", ["loading_model", "draining"])
def test_the_status_of_a_daemon_that_is_not_ready_is_printed(short_dir, word):
    with listening(short_dir / "admin.sock", says(status(word))):
        assert error_of(short_dir) == (
            f"the daemon is {word}",
            "inferd status --watch",
        )


@pytest.mark.parametrize(
    "dialogue",
    [says(), lambda sock: sock.sendall(b"220 hi\n")],
    ids=["nothing", "another protocol"],
)
def test_an_admin_socket_that_makes_no_sense_is_no_daemon(short_dir, dialogue):
    with listening(short_dir / "admin.sock", dialogue):
        assert error_of(short_dir)[1] == "inferd serve"


def test_a_silent_daemon_does_not_block_a_command(short_dir, monkeypatch):
    monkeypatch.setattr("inferd.cli.connect.ADMIN_TIMEOUT_S", 0.01)
    with listening(short_dir / "admin.sock", stay_silent):
        assert error_of(short_dir)[1] == "inferd serve"


# --- the embedded chat model ------------------------------------------------------------


@pytest.mark.parametrize(
    ("backends", "is_sample"),
    [
        ("", True),
        ('[[backend]]\nkind = "llamacpp"\nname = "a"\n', True),
        ('[[backend]]\nkind = "llamacpp"\nname = "a"\nmodel = "/m.gguf"\n', False),
        ('[[backend]]\nkind = "mock"\nname = "a"\n', False),
    ],
)
def test_without_access_to_its_models_the_configuration_says_what_is_served(
    short_dir, backends, is_sample
):
    config = short_dir / "inferd" / "config.toml"
    config.parent.mkdir()
    config.write_text(f'[listen]\ndirectory = "{short_dir}"\n{backends}')
    assert serves_sample(None) is is_sample


def test_the_configuration_is_ignored_for_a_given_directory(short_dir):
    assert not serves_sample(short_dir)
