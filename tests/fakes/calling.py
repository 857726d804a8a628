"""Have processes make every system call inside a sandbox; collect the kernel's answers."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PROGRAM = Path(__file__).with_name("each_call.py")
MAX_DEATHS = 10

Run = Callable[[Sequence[str]], str]
"""Runs the program with arguments; gives what it prints."""


def in_stage(stage: str) -> Run:
    """Run it as it is, to enter the sandbox by itself."""

    def run(numbers: Sequence[str]) -> str:
        command = [sys.executable, str(PROGRAM), stage, *numbers]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.stdout

    return run


def in_audit(numbers: Sequence[str]) -> str:
    """Run it as a script for audits."""
    done = subprocess.run(
        [sys.executable, "-m", "inferd.worker.sandbox", str(PROGRAM), "", *numbers],
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout


def answers(run: Run, numbers: Sequence[int]) -> dict[int, int | None]:
    """Make calls; give the error of each, ``None`` where it ended the process."""
    found: dict[int, int | None] = {}
    left = list(numbers)
    while left:
        lines = run([str(each) for each in left]).splitlines()
        found |= {int(line.split()[0]): int(line.split()[1]) for line in lines}
        if len(lines) < len(left):
            found[left[len(lines)]] = None
        left = left[len(lines) + 1 :]
        assert [*found.values()].count(None) <= MAX_DEATHS
    return found
