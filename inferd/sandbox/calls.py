"""The numbers of system calls on the processors that sandboxes are known for."""

import platform
import sys
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_TABLE: Final = Path(__file__).with_name("calls.tsv")
_NONE: Final = "-"


class Machine(NamedTuple):
    """A processor, as filters of system calls see it."""

    name: str
    """As ``uname`` says it."""
    architecture: int
    """As the kernel's audit numbers it."""
    column: int
    """Of the table."""


MACHINES: Final = {
    machine.name: machine
    for machine in (
        Machine("x86_64", 0xC000_003E, 1),
        Machine("aarch64", 0xC000_00B7, 2),
    )
}


def this_machine() -> Machine | None:
    """Tell what this process runs on; ``None`` where no filter is known for it."""
    return MACHINES.get(platform.machine()) if sys.maxsize > 2**32 else None


@cache
def numbers(machine: Machine) -> dict[str, int]:
    """Give the number of each call that there is on a processor.

    Raises:
        OSError: the table cannot be read; it is a part of the package.
    """
    rows = [
        line.split("\t")
        for line in _TABLE.read_text("ascii").splitlines()
        if not line.startswith("#")
    ]
    return {
        row[0]: int(row[machine.column]) for row in rows if row[machine.column] != _NONE
    }
