"""The commands of docs/watching.md."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.daemon.harness import DaemonProcess, clean_environ, eventually
from tests.documents.pages import commands

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]
COMMANDS: Final = commands("docs/watching.md")


def test_every_command_of_the_document_runs(shared_daemon: DaemonProcess):
    shared_daemon.ask(id="r-17")
    operator = shared_daemon.admin()
    assert eventually(lambda: operator.order("explain", id="r-17")["ok"])
    assert len(COMMANDS) == 6
    for command in COMMANDS:
        if command == "inferd top":
            continue  # needs a terminal: tests/daemon/test_top.py
        words = command.split()[1:]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "inferd", *words),
                "--directory",
                str(shared_daemon.directory),
            ],
            capture_output=True,
            text=True,
            env=clean_environ(),
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert ("mock" if "top" in words else "r-17") in done.stdout
