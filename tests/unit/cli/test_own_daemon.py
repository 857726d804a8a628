import subprocess
import sys

import pytest

from inferd.cli import own_daemon
from inferd.cli.console import CommandError
from tests.fakes.listener import listening, says, status


class Process:
    """A daemon's process that has ended, or has not."""

    def __init__(self, code: int | None = None) -> None:
        self._code = code

    def poll(self) -> int | None:
        return self._code


def test_waiting_tells_how_far_the_daemon_is(short_dir, capsys):
    loading = status("loading_model", phase="mmap")
    with listening(short_dir / "admin.sock", says(loading, status("ready"))):
        own_daemon._wait("demo", Process(), short_dir, short_dir / "log")  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == [
        "demo: starting a private daemon",
        "demo: loading_model mmap",
        "demo: ready",
    ]


def test_a_daemon_that_ended_is_quoted(short_dir):
    log = short_dir / "log"
    log.write_text("{}\nerror: no such model\n")
    with pytest.raises(CommandError) as caught:
        own_daemon._wait("demo", Process(2), short_dir, log)  # type: ignore[arg-type]
    assert caught.value.text == "no such model"


def test_a_daemon_that_ended_without_output_is_reported(short_dir):
    log = short_dir / "log"
    log.touch()
    with pytest.raises(CommandError) as caught:
        own_daemon._wait("demo", Process(2), short_dir, log)  # type: ignore[arg-type]
    assert "no daemon answers at" in caught.value.text


def test_a_daemon_that_still_answers_others_is_waited_for(monkeypatch):
    monkeypatch.setattr(own_daemon, "STOP_S", 0.0)
    told: list[str] = []
    waits = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as daemon:

        def tell(text: str) -> None:
            told.append(text)
            daemon.communicate(b"\n")

        monkeypatch.setattr(own_daemon, "print_stderr", tell)
        assert own_daemon._wait_for_end("inferd", daemon) == 0
    assert told == ["inferd: the daemon still answers other clients; Ctrl-C ends it"]
