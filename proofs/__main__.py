"""Prove at length what the tests show in short.

make proof                             # all of it, in full: half an hour
make proof PROOF=pulls SEED=7          # one of them, drawn as before
python -m proofs --short               # all of it, in a minute
"""

import sys
from pathlib import Path
from typing import Final

from proofs.catalogue import BY_KEY, PROOFS
from torture.command import Command, run_command
from torture.report import Layout

HEAD: Final = """\
# Proofs

What `make proof` found; `python -m proofs --help` tells how to run a part of it.
Each part has its seed, and `python -m proofs pulls --seed SEED` draws the same again.
After each of them nothing of it may be left: no descriptor, process, temporary file or shared memory.
"""
LAYOUT: Final = Layout(HEAD, tuple(BY_KEY))
COMMAND: Final = Command(
    "python -m proofs", __doc__, PROOFS, LAYOUT, Path(__file__).resolve().parent
)

if __name__ == "__main__":
    sys.exit(run_command(COMMAND))
