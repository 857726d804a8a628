"""Requests that name their model, from outside."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import (
    SERVE_WITH_KINDS,
    DaemonProcess,
    MakeDaemon,
    blocks,
    generate,
    mock,
)

pytestmark = pytest.mark.slow

TEXT, V2 = "infer.sock", "infer.v2.sock"
EMBED, RERANK = "infer.embed.sock", "infer.rerank.sock"
SENT = {
    TEXT: generate(max_tokens=1),
    V2: blocks("hi", max_tokens=1),
    EMBED: {"input": ["x"]},
    RERANK: {"query": "q", "documents": ["x"]},
}
NAMES = ["one", "fast", "gpt-4o", "two", "team/two:q4"]
"""Of those that can do everything."""


def start(make_daemon: MakeDaemon) -> DaemonProcess:
    """Start a daemon with a backend that only writes, before two that can do it all."""
    parrot = {"name": "parrot", "kind": "echo", "greeting": "polly"}
    one = mock(name="one", aliases=["fast", "gpt-4o"])
    two = mock(name="two", aliases=["team/two:q4"], vision=True)
    daemon = make_daemon({"backend": [parrot, one, two]})
    daemon.command = SERVE_WITH_KINDS
    return daemon.start()


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """One for all tests that leave it as it was."""
    with daemons() as make:
        yield start(make)


@pytest.fixture
def reloaded(make_daemon: MakeDaemon) -> DaemonProcess:
    """One whose configuration a test may change."""
    return start(make_daemon)


def end(daemon: DaemonProcess, leaf: str, **fields: Any) -> dict[str, Any]:
    """Ask on a connection of its own; give the last frame, behind which another fits."""
    with daemon.connect(leaf) as client:
        last = client.ask({**SENT[leaf], "id": "a", **fields})[-1]
        again = client.ask({**SENT[leaf], "id": "b"})[-1]
    assert (last["id"], again["id"], again["type"] == "error") == ("a", "b", False)
    return last


@pytest.mark.parametrize("leaf", SENT)
def test_the_model_that_is_named_answers_on_every_socket(daemon: DaemonProcess, leaf):
    any_of_them = "parrot" if leaf == TEXT else "one"
    served = {
        model: end(daemon, leaf, model=model)["backend"]
        for model in ("one", "fast", "gpt-4o", "two", "team/two:q4", None)
    }
    assert served.pop(None) == any_of_them
    assert served == {
        **dict.fromkeys(("one", "fast", "gpt-4o"), "one"),
        **dict.fromkeys(("two", "team/two:q4"), "two"),
    }


@pytest.mark.parametrize("leaf", SENT)
def test_another_name_is_never_answered_by_what_is_there(daemon: DaemonProcess, leaf):
    for n_bytes in (0, 40_000):  # the second is read by another process
        frame = end(daemon, leaf, model="big", padding="x" * n_bytes)
        assert (frame["type"], frame["code"]) == ("error", "model_not_found")
        names = ["parrot", *NAMES] if leaf == TEXT else NAMES
        assert frame["models"] == names
        assert frame["message"] == (
            f'model "big" is not served here; names that can do this: {", ".join(names)}'
        )


def test_a_name_that_cannot_do_it_is_told_with_those_that_can(daemon: DaemonProcess):
    frame = end(daemon, EMBED, model="parrot")
    assert (frame["code"], frame["models"]) == ("model_not_found", NAMES)
    assert frame["message"].startswith('model "parrot" has no support for embeddings; ')
    picture = {"kind": "image", "id": "i", "width": 1, "height": 1, "bytes": "AAAA"}
    message = {"role": "user", "content": [{"type": "image", "attachment_id": "i"}]}
    asked = {"messages": [message], "attachments": [picture]}
    frame = end(daemon, V2, model="fast", **asked)
    assert (frame["code"], frame["models"]) == (
        "model_not_found",
        ["two", "team/two:q4"],
    )
    assert end(daemon, V2, model="two", **asked)["backend"] == "two"


def test_names_are_told_on_connect_and_changed_by_a_reload_without_a_restart(
    reloaded: DaemonProcess,
):
    daemon = reloaded

    def told() -> dict[str, tuple[list[str], str]]:
        with daemon.admin() as listener:
            *able, _ = listener.until("ready")
        return {each["backend"]: (each["aliases"], each["state"]) for each in able}

    assert told() == {
        "one": (["fast", "gpt-4o"], "ready"),
        "parrot": ([], "ready"),
        "two": (["team/two:q4"], "ready"),
    }
    text = daemon.config_file.read_text()
    daemon.config_file.write_text(text.replace('"gpt-4o"', '"gpt-5"'))
    reply = daemon.admin().order("reload")
    assert (reply["applied"], reply["needs_restart"]) == (["backend one: aliases"], [])
    assert end(daemon, TEXT, model="gpt-4o")["code"] == "model_not_found"
    assert end(daemon, TEXT, model="gpt-5")["backend"] == "one"
    assert told()["one"] == (["fast", "gpt-5"], "ready")


def test_a_backend_that_is_out_of_service_is_told_as_failed(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()], "limits": {"breaker_deaths": 1}}).start()
    with daemon.admin() as listener:
        listener.until("ready")
        daemon.kill_worker()
        listener.until("restarting", phase="breaker_open")
    with daemon.admin() as listener:
        able = listener.frame()
    assert (able["status"], able["state"]) == ("capabilities", "failed")
