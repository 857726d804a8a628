"""The README and the first ten minutes do what they say, with a daemon as it comes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from inferd.paths import runtime_directory
from tests.daemon.fleet import free_port
from tests.daemon.harness import clean_environ, eventually
from tests.documents.catalogue import FIRST, run_by
from tests.documents.pages import ROOT, texts
from tests.documents.typed import (
    SOCKETS,
    Check,
    has,
    here,
    is_chat_completion,
    is_nothing,
    is_something,
    is_sound,
    is_tokens,
    run,
    running,
    serving,
)

pytestmark = [pytest.mark.slow, pytest.mark.model]

SERVE: Final = ".venv/bin/inferd serve"
BRIDGE: Final = ".venv/bin/inferd bridge"
ADDRESS: Final = "127.0.0.1:8313"
PAGES: Final = ("README.md", "docs/first-ten-minutes.md")
PROGRAMS: Final = [text for page in PAGES for text in texts(page, "python")]
CHECKS: Final[dict[str, Check]] = {
    '.venv/bin/inferd generate "What is the capital': has("Paris"),
    ".venv/bin/inferd status": has("ready"),
    ".venv/bin/inferd doctor": is_sound,
    ".venv/bin/python first.py": has("Paris"),
    ".venv/bin/inferd config init": is_nothing,
    "curl --silent http://127.0.0.1:8313/": is_chat_completion,
    r"""printf '%s\n' '{"id":"1",""": is_tokens,
}
"""How a command's output is checked, by how the command begins."""
STARTED: Final = (SERVE, BRIDGE, "sockets=")
"""What fixtures and other commands begin with."""
COMMANDS: Final = [each.text for each in run_by(FIRST)]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A user who has a program of the page."""
    with TemporaryDirectory(prefix="inferd-") as path:
        program = texts("docs/first-ten-minutes.md", "python")[0]
        (Path(path) / "first.py").write_text(program)
        yield Path(path)


@pytest.fixture(scope="module")
def environ(home: Path) -> dict[str, str]:
    """Nothing of the machine's own but its models."""
    return clean_environ() | {
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_STATE_HOME": str(home / "state"),
        "INFERD_LOG_DIR": str(home / "log"),
        "INFERD_MODELS": os.environ["INFERD_MODELS"],
        "PATH": os.environ["PATH"],
    }


@pytest.fixture(scope="module")
def daemon(environ: dict[str, str]) -> Iterator[None]:
    with serving(environ):
        yield


@pytest.fixture(scope="module")
def bridge(daemon: None, environ: dict[str, str]) -> Iterator[str]:
    """The bridge at a port that is free; give its address."""
    address = f"127.0.0.1:{free_port()}"
    health = ("curl", "--silent", "--fail", f"http://{address}/ready")
    with running(f"{BRIDGE} --listen {address}", environ):
        assert eventually(lambda: subprocess.run(health, check=False).returncode == 0)
        yield address


def test_each_command_is_checked():
    assert {SERVE, BRIDGE} < set(COMMANDS)
    starts = (*CHECKS, *STARTED)
    assert [line for line in COMMANDS if not line.startswith(starts)] == []


@pytest.mark.long
@pytest.mark.parametrize(
    "line", [line for line in COMMANDS if line.startswith(tuple(CHECKS))]
)
def test_a_command_works(request, daemon, environ, home, line):
    [check] = [each for start, each in CHECKS.items() if line.startswith(start)]
    if ADDRESS in line:
        line = line.replace(ADDRESS, request.getfixturevalue("bridge"))
    check(run(line, environ, home))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_works(daemon, environ, program):
    is_something(
        subprocess.check_output(
            [sys.executable, "-c", program], cwd=ROOT, env=environ, text=True
        )
    )


@pytest.mark.parametrize(
    "variables",
    [
        {"HOME": "/home/anna"},
        {"HOME": "/home/anna", "XDG_RUNTIME_DIR": ""},
        {"HOME": "/home/anna", "XDG_RUNTIME_DIR": "/run/user/1000"},
    ],
)
def test_the_sockets_are_where_a_daemon_puts_them(variables):
    script = f'{SOCKETS}; printf %s "$sockets"'
    shell = ["/bin/sh", "-c", here(script)]
    printed = subprocess.check_output(shell, env=variables, text=True)
    assert Path(printed) == runtime_directory(variables)
