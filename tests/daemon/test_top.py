"""``inferd top`` in a terminal, beside a real daemon that is asked by several people."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, clean_environ, eventually, mock

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

WIDE = "日本語のとても長い名前" * 6
ENDLESS = mock(tokens=["x"] * 100_000, token_delay_ms=100)
TOP = [sys.executable, "-m", "inferd", "top"]


class Terminal:
    """A program in tmux."""

    def __init__(self, server: Path, width: int, height: int) -> None:
        self._server = server
        self._width, self._height = width, height

    def run(self, *command: str) -> str:
        """Give a command to tmux; return what it prints."""
        done = subprocess.run(
            ["tmux", "-S", str(self._server), *command],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def start(self, *command: str, **environ: str) -> None:
        """Start a program in a new terminal."""
        size = ("-x", str(self._width), "-y", str(self._height))
        settings = [f"-e{name}={value}" for name, value in environ.items()]
        self.run("-f", os.devnull, "new-session", "-d", *size, *settings, *command)
        self.run("set-option", "-g", "remain-on-exit", "on")

    def lines(self, *options: str) -> list[str]:
        return self.run("capture-pane", "-p", *options).splitlines()

    def press(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def shows(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        """Wait until the screen is so; return it."""
        seen: list[list[str]] = []

        def look() -> bool:
            seen[:] = [self.lines()]
            return is_so(seen[0])

        assert eventually(look), "\n".join(seen[0])
        return seen[0]

    def has(self, pattern: str) -> list[str]:
        """Wait until a line of the screen matches; return the screen."""
        return self.shows(lambda lines: any(re.search(pattern, each) for each in lines))

    def has_not(self, pattern: str) -> list[str]:
        return self.shows(
            lambda lines: not any(re.search(pattern, each) for each in lines)
        )


@contextmanager
def terminal(width: int, height: int) -> Iterator[Terminal]:
    with tempfile.TemporaryDirectory(prefix="inferd-tmux-") as directory:
        opened = Terminal(Path(directory) / "s", width, height)
        try:
            yield opened
        finally:
            opened.run("kill-server")


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """A daemon that answers one of four people, for as long as the tests last."""
    access = {"gateways": {"uids": [os.getuid()]}}
    admission = {"max_active": 1}
    with daemons() as make:
        config = {"backend": [ENDLESS], "access": access, "admission": admission}
        daemon = make(config).start()
        for name in ("ann", "bob", WIDE[:60], "e" * 100):
            daemon.begin("r", principal=name)
        yield daemon


def command_of(daemon: DaemonProcess, *arguments: str) -> list[str]:
    return [*TOP, "--directory", str(daemon.directory), *arguments]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 20)])
def test_a_terminal_has_all_of_it_and_keys_are_obeyed(
    daemon: DaemonProcess, width: int, height: int
):
    with terminal(width, height) as screen:
        screen.start(*command_of(daemon, "--interval", "0.5"), NO_COLOR="1")
        lines = screen.has(r"^queue +1 of 1 run +\d wait")
        assert lines[0].startswith("inferd ")
        assert any(re.match(r"MODEL +STATE", each) for each in lines)
        assert any(re.match(r"mock +ready", each) for each in lines)
        assert sum(each.startswith(f"{os.getuid()} for ") for each in lines) == 4
        assert screen.lines("-e") == screen.lines()
        assert any(each.startswith("q quit") for each in lines)
        screen.press("s")
        screen.has("^USER by waiting")
        screen.press("u")
        screen.has_not("^MODEL")
        screen.press("p")
        screen.has("PAUSED")
        screen.run("resize-window", "-x", "60", "-y", "12")
        assert len(screen.shows(lambda lines: len(lines) == 12)) == 12
        screen.press("q")
        screen.has("Pane is dead")


def test_a_daemon_that_goes_and_comes_back_is_followed():
    with daemons() as make, terminal(80, 24) as screen:
        daemon = make({"backend": [mock()]}).start()
        screen.start(*command_of(daemon, "--interval", "0.5"))
        screen.has("^mock +ready")
        assert any("\x1b[7m" in each for each in screen.lines("-e"))
        daemon.stop()
        screen.has(r"^\d+ s old: no daemon answers")
        daemon.start()
        screen.has_not("s old")
        assert any(each.startswith("mock") for each in screen.lines())


def test_once_prints_it_for_programs_and_people(daemon: DaemonProcess):
    def once(*more: str) -> str:
        done = subprocess.run(
            command_of(daemon, "--once", *more),
            capture_output=True,
            text=True,
            env={**clean_environ(), "COLUMNS": "80"},
            check=True,
        )
        assert done.stderr == ""
        return done.stdout

    overview = json.loads(once("--json"))
    assert overview["running"] == 1
    assert overview["waiting"] + overview["paused"] == 3
    assert overview["models"][0]["pid"] in daemon.worker_pids()
    assert overview["models"][0]["resident_bytes"] > 1_000_000
    assert {each.get("principal", "")[:3] for each in overview["users"]} >= {
        "ann",
        "bob",
    }
    text = once()
    assert "1 of 1 run" in text
    assert "\x1b" not in text
