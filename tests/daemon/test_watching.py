"""The commands of docs/watching.md."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.daemon.harness import DaemonProcess, clean_environ, eventually
from tests.documents.pages import commands

pytestmark = pytest.mark.slow

COMMANDS: Final = [
    each for each in commands("docs/watching.md") if not each.startswith("promtool ")
]


def test_every_command_of_the_document_runs(shared_daemon: DaemonProcess):
    shared_daemon.ask(id="r-17")
    operator = shared_daemon.admin()
    assert eventually(lambda: operator.order("explain", id="r-17")["ok"])
    assert len(COMMANDS) == 7
    for command in COMMANDS:
        if command == "inferd top":
            continue  # needs a terminal: tests/daemon/test_top.py
        if not command.startswith("inferd "):
            continue
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


def test_the_metrics_are_written_for_node_exporter(
    shared_daemon: DaemonProcess, tmp_path: Path
):
    [command] = [each for each in COMMANDS if each.startswith("echo ")]
    line = command.replace("/run/inferd", str(shared_daemon.directory))
    subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, check=True)
    [written] = tmp_path.iterdir()
    families = text_string_to_metric_families(written.read_text())
    assert "inferd_worker_resident_bytes" in [each.name for each in families]
