"""R13: the n-th allocation fails while frames are cut, for every n."""

import subprocess
import sys
from typing import Final

from torture.outcome import Context, SkippedError

KEY: Final = "R13"
NAME: Final = "Allocations that fail while frames are cut"

PATIENCE_S: Final = 600.0
NOT_HERE: Final = 77
"""Exit status of a program that cannot do here what it is for."""


def run(context: Context) -> None:
    """Fail each allocation in a process of its own."""
    n_first = context.pick(short=60, full=100_000)
    result = subprocess.run(
        [sys.executable, "-m", "torture.starved", str(n_first)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    words = (result.stdout + result.stderr).strip()
    if result.returncode == NOT_HERE:
        raise SkippedError(words)
    context.notes.append(words.splitlines()[-1] if words else "no word")
    context.require(result.returncode == 0, words[-500:])
