import argparse
from pathlib import Path

import pytest

from inferd.cli.console import CommandError
from inferd.cli.daemon import add_socket_argument, asking, configured_directory
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
    with pytest.raises(CommandError) as caught, asking(directory, "embeddings") as it:
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


def test_a_refusal_is_told_as_the_daemon_words_it(short_dir):
    path = short_dir / "infer.embed.sock"
    with listening(path, answers([failure("queue_full", "queue full")])):
        assert error_of(short_dir) == ("queue_full: queue full", "")


def test_a_daemon_that_cannot_read_a_request_may_be_an_older_one(short_dir):
    unread = failure("invalid_request", "decode: Expected `str`, got `null`", "")
    with listening(short_dir / "infer.embed.sock", answers([unread])):
        text, hint = error_of(short_dir)
    assert text == "invalid_request: decode: Expected `str`, got `null`"
    assert "older than this command" in hint


def test_without_a_daemon_the_hint_is_to_start_one(short_dir):
    text, hint = error_of(short_dir)
    assert text.startswith(
        f"no daemon answers at {short_dir}/infer.embed.sock (No such"
    )
    assert hint == "inferd serve"


def test_a_daemon_that_serves_something_else_is_told_from_none(short_dir):
    dialogue = says(
        status("capabilities", backend="chat", embed=False), status("ready")
    )
    with listening(short_dir / "admin.sock", dialogue):
        assert error_of(short_dir) == (
            "the daemon serves no embeddings",
            "add a [[backend]] with a model for embeddings to its configuration",
        )


@pytest.mark.parametrize("able", [[True, False], [False, True]])
def test_a_surface_that_is_turned_off_is_told_from_one_that_nobody_serves(
    short_dir, able
):
    told = [status("capabilities", backend="b", embed=each) for each in able]
    with listening(short_dir / "admin.sock", says(*told, status("ready"))):
        assert error_of(short_dir) == (
            "the daemon serves no embeddings",
            "set listen.embed = true in its configuration",
        )


@pytest.mark.parametrize("leaf", ["infer.sock", "infer.v2.sock", "infer.rerank.sock"])
def test_who_may_not_ask_the_admin_socket_sees_what_is_served(short_dir, leaf):
    with listening(short_dir / leaf, stay_silent):
        assert error_of(short_dir)[0] == "the daemon serves no embeddings"


@pytest.mark.parametrize("word", ["loading_model", "draining"])
def test_a_daemon_that_is_not_ready_says_how_it_is(short_dir, word):
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


def test_a_daemon_that_says_nothing_does_not_hold_a_command_up(short_dir, monkeypatch):
    monkeypatch.setattr("inferd.cli.daemon.ANSWER_S", 0.01)
    with listening(short_dir / "admin.sock", stay_silent):
        assert error_of(short_dir)[1] == "inferd serve"
