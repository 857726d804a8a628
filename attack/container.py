"""The installed service under its real unit, in a container, attacked from inside."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attack.report import read_report, write_report
from attack.target import ROOT
from tests.systemd.container import Container, booted, install, missing, overlay

GROUP: Final = "inferd"
SOCKETS: Final = Path("/run/inferd")
AT_A_SERVICE: Final = ("structures", "permits", "loop", "lines", "caches")
"""Kinds of attacks at sockets; the others start daemons or use files of their own."""
INSIDE: Final = Path("/opt/attack/report.json")
"""Of the report in there; what is below /tmp is gone with the container."""
PATIENCE_S: Final = 2 * 3600.0
SKIPPED: Final = 77


def attack_unit(names: Sequence[str], seconds: float, report: Path) -> int:
    """Install, boot, attack, and put what was found into the report.

    Gives the exit code: 0 if all held.
    """
    if reason := missing():
        sys.stderr.write(f"no container: {reason}\n")
        return SKIPPED
    with (
        tempfile.TemporaryDirectory(prefix="attack-") as scratch,
        overlay(Path(scratch)) as root,
    ):
        install(root)
        with booted(root) as container:
            container.run("systemctl", "start", GROUP)
            code = _attack(container, names, seconds)
        found, known = read_report(root / INSIDE.relative_to("/")), read_report(report)
        known.machine = found.machine
        for name, outcomes in found.outcomes.items():
            for outcome in outcomes:
                known.add(name, outcome)
        write_report(known, report)
    return code


def _attack(container: Container, names: Sequence[str], seconds: float) -> int:
    only = ["--only", *(names or AT_A_SERVICE)]
    result = container.run(
        *("env", "-C", str(ROOT), sys.executable, "-m", "attack", *only),
        *("--running", str(SOCKETS), "--group", GROUP, "--restart", GROUP),
        *("--seconds", str(seconds), "--json", str(INSIDE)),
        check=False,
        timeout_s=PATIENCE_S,
    )
    sys.stdout.write(result.stdout)
    sys.stderr.write(result.stderr)
    return result.returncode
