"""Break whatever can break, and see the daemon keep its word.

make torture                       # all of it, in full: hours
python -m torture --short          # all of it, in a minute or two
python -m torture R1 R4 --seed 7   # some of it
"""

import sys
from pathlib import Path
from typing import Final

from torture.catalogue import ITEMS
from torture.command import Command, run_command
from torture.report import TORTURE

REPORT: Final = Path(__file__).resolve().parents[1] / "tests" / "torture"
COMMAND: Final = Command("python -m torture", __doc__, ITEMS, TORTURE, REPORT)

if __name__ == "__main__":
    sys.exit(run_command(COMMAND))
