import io
import os
import socket
import sys
from contextlib import contextmanager

import pytest

from inferd.cli import alone
from inferd.client.discovery import NoDaemonError
from inferd.surfaces import V2
from tests.cases import each_case


@pytest.fixture
def told(monkeypatch):
    """Note what is done, where no daemon runs and a person says something."""
    done: list[str] = []

    @contextmanager
    def daemon(*_: object):
        done.append("started")
        yield
        done.append("stopped")

    monkeypatch.setattr(alone, "own_daemon", daemon)
    monkeypatch.setattr(alone, "configured_directory", lambda: None)
    monkeypatch.setattr(alone, "is_absent", lambda _: True)
    monkeypatch.setattr(alone, "missing_packages", list)
    monkeypatch.setattr(alone, "end_by_signals", lambda: None)

    def run(said: str) -> list[str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(said))

        def chat() -> int:
            done.append("chat")
            return 0

        assert alone.run(lambda: done.append("help"), chat) == 0
        return done

    return run


@each_case("said", ["", "\n", "n\n", "no\n", "yess\n", "y y\n"])
def test_nothing_but_a_yes_starts_a_daemon(told, said):
    assert set(told(said)) == {"help"}


def test_a_yes_starts_a_daemon_that_ends_with_the_chat(told):
    assert told("Y\n") == ["help", "started", "chat", "stopped"]


def test_nobody_is_asked_where_a_daemon_answers_or_packages_are_missing(
    told, monkeypatch, capsys
):
    monkeypatch.setattr(alone, "is_absent", lambda _: False)
    assert told("y\n") == ["help"]
    assert "No daemon" not in capsys.readouterr().out
    monkeypatch.setattr(alone, "is_absent", lambda _: True)
    monkeypatch.setattr(alone, "missing_packages", lambda: ["rich"])
    assert told("y\n") == ["help", "help"]
    assert alone.QUESTION not in capsys.readouterr().out


def test_a_daemon_that_answers_or_refuses_is_not_absent(short_dir, monkeypatch):
    assert alone.is_absent(short_dir)
    path = short_dir / V2.socket
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert alone.is_absent(short_dir)
        listener.listen()
        assert not alone.is_absent(short_dir)

    def denied(*_: object) -> None:
        raise NoDaemonError("denied", {path: PermissionError()})

    monkeypatch.setattr(alone, "connect", denied)
    assert not alone.is_absent(short_dir)
    monkeypatch.setattr(alone, "find_stopped", lambda _: ("service", "state"))
    assert not alone.is_absent(short_dir)


def test_a_pipe_is_no_terminal(monkeypatch):
    read, write = os.pipe()
    os.close(write)
    with os.fdopen(read) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert not alone.is_on_terminal()
    monkeypatch.setattr(sys, "stdin", None)
    assert not alone.is_on_terminal()
