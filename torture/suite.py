"""Tests that are items of the list as they are."""

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from torture.outcome import Context, SkippedError

ROOT: Final = Path(__file__).resolve().parents[1]
PATIENCE_S: Final = 1200.0
WORD: Final = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


def run_tests(context: Context, *arguments: str) -> None:
    """Run tests with pytest; report how many there were, and what came of them.

    Raises:
        SkippedError: all of them were skipped, with the reason.
    """
    with TemporaryDirectory(prefix="pytest-") as place:
        result = _pytest(f"--basetemp={place}/tests", *arguments)
    last = (result.stdout.strip().splitlines() or [""])[-1]
    context.counts |= {word: int(number) for number, word in WORD.findall(last)}
    context.require(result.returncode == 0, last)
    reasons = set(
        re.findall(r"^SKIPPED \[.*?\] \S+ (.*)$", result.stdout, re.MULTILINE)
    )
    if reasons and "passed" not in context.counts:
        raise SkippedError("; ".join(sorted(reasons)))
    context.notes += [f"skipped: {reason}" for reason in sorted(reasons)]


def _pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
