"""Run a checkout's programs as other users, who may not be able to enter its directory."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PATIENCE_S: Final = 60.0
_READ_ALL: Final = "-all,+dac_read_search"
"""All that is kept of root's: to read files, since a checkout may be root's alone."""


def as_user(uid: int) -> list[str]:
    """Give the words before a command which make it another user's."""
    return [
        *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
        *(f"--inh-caps={_READ_ALL}", f"--ambient-caps={_READ_ALL}"),
    ]


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    patience_s: float = PATIENCE_S,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in a process group of its own.

    Raises:
        subprocess.TimeoutExpired: it takes too long; it is killed.
    """
    return subprocess.run(
        command,
        cwd=cwd,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=patience_s,
        process_group=0,
        check=False,
    )
