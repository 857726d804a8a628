"""R5: lines that are no frames, by the programs of ``fuzz``."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from torture.outcome import Context

KEY: Final = "R5"
NAME: Final = "Malformed lines, at every decoder and on every socket"

PATIENCE_S: Final = 3 * 3600.0


def run(context: Context) -> None:
    """Run each program; it fails if anything does."""
    n_lines = context.pick(short=4000, full=10_000_000)
    n_sent = context.pick(short=200, full=100_000)
    context.counts |= {"lines": n_lines, "lines_on_sockets": n_sent}
    seed = ["--seed", str(context.seed)]
    programs = [
        ["fuzz.lines", str(n_lines), "--processes", "2", *seed],
        ["fuzz.socket", str(n_sent), *seed],
    ]
    if context.pick(short=False, full=True):
        programs += [["fuzz.truncation"], ["fuzz.large"]]
        programs.append(["fuzz.coverage", "-max_total_time=60"])
    for program in programs:
        _run(context, program)


def _run(context: Context, program: Sequence[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )
    last = (result.stdout.strip().splitlines() or [""])[-1]
    context.notes.append(f"{program[0]}: {last}")
    context.require(result.returncode == 0, f"{program[0]} found: {last}")
