"""Tests that are items of the list as they are."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from torture.outcome import Context, SkippedError

ROOT: Final = Path(__file__).resolve().parents[1]
PATIENCE_S: Final = 1200.0
COUNTS_VARIABLE: Final = "TORTURE_COUNTS"
WORD: Final = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


def run_tests(context: Context, *arguments: str) -> None:
    """Run tests with pytest; report how many there were, and what came of them.

    What they count beside, they write to ``COUNTS_VARIABLE``, a JSON object a line.

    Raises:
        SkippedError: all of them were skipped, with the reason.
    """
    with TemporaryDirectory(prefix="pytest-") as place:
        counts = Path(place) / "counts"
        result = _pytest(counts, f"--basetemp={place}/tests", *arguments)
        if counts.exists():
            for line in counts.read_text().splitlines():
                context.counts |= json.loads(line)
    last = (result.stdout.strip().splitlines() or [""])[-1]
    context.counts |= {word: int(number) for number, word in WORD.findall(last)}
    context.require(result.returncode == 0, last)
    reasons = set(
        re.findall(r"^SKIPPED \[.*?\] \S+ (.*)$", result.stdout, re.MULTILINE)
    )
    if reasons and "passed" not in context.counts:
        raise SkippedError("; ".join(sorted(reasons)))
    context.notes += [f"skipped: {reason}" for reason in sorted(reasons)]


def tell_counts(**counts: int) -> None:
    """Have counts of a test reported, if anybody reports them."""
    if path := os.environ.get(COUNTS_VARIABLE):
        with Path(path).open("a") as file:
            file.write(json.dumps(counts) + "\n")


def _pytest(counts: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={**os.environ, COUNTS_VARIABLE: str(counts)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
