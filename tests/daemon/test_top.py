"""``inferd top`` in a terminal, beside a real daemon that is asked by several people."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, clean_environ, mock
from tests.daemon.tmux import INFERD, Terminal

pytestmark = [pytest.mark.slow, pytest.mark.short_version]

WIDE = "日本語のとても長い名前" * 6
ENDLESS = mock(tokens=["x"] * 100_000, token_delay_ms=100)
TOP = [*INFERD, "top"]


@contextmanager
def terminal(width: int, height: int, **environ: str) -> Iterator[Terminal]:
    whole = {**clean_environ(), **environ}
    with (
        tempfile.TemporaryDirectory(prefix="inferd-tmux-") as directory,
        Terminal(Path(directory), width, height, whole) as opened,
    ):
        yield opened


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
    with terminal(width, height, NO_COLOR="1") as screen:
        screen.run(command_of(daemon, "--interval", "0.5"))
        lines = screen.wait_line(r"queue +1 of 1 run +\d wait")
        assert lines[0].startswith("inferd ")
        assert any(re.match(r"MODEL +STATE", each) for each in lines)
        assert any(re.match(r"mock +ready", each) for each in lines)
        assert sum(each.startswith(f"{os.getuid()} for ") for each in lines) == 4
        assert screen.screen(has_styles=True) == screen.screen()
        assert any(each.startswith("q quit") for each in lines)
        screen.keys("s")
        screen.wait("\nUSER by waiting")
        screen.keys("u")
        screen.wait_gone("\nMODEL")
        screen.keys("p")
        screen.wait("PAUSED")
        screen.resize(60, 12)
        screen.wait_until(lambda seen: len(seen.splitlines()) == 12)
        screen.keys("q")
        assert screen.code() == 0


def test_a_daemon_that_goes_and_comes_back_is_followed():
    with daemons() as make, terminal(80, 24) as screen:
        daemon = make({"backend": [mock()]}).start()
        screen.run(command_of(daemon, "--interval", "0.5"))
        screen.wait_line("mock +ready")
        assert "\x1b[7m" in screen.screen(has_styles=True)
        daemon.stop()
        screen.wait_line(r"\d+ s old: no daemon answers")
        daemon.start()
        screen.wait_gone("s old")
        assert "\nmock" in screen.screen()


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
