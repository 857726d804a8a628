"""System call numbers of the processors that sandboxes support."""

import platform
import sys
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_TABLE: Final = Path(__file__).with_name("calls.tsv")
_NONE: Final = "-"


class Machine(NamedTuple):
    """A processor architecture, as filters see it."""

    name: str
    """As in ``uname -m``."""
    architecture: int
    """The kernel's ``AUDIT_ARCH`` constant."""
    column: int
    """Column of the table."""


MACHINES: Final = {
    machine.name: machine
    for machine in (
        Machine("x86_64", 0xC000_003E, 1),
        Machine("aarch64", 0xC000_00B7, 2),
    )
}


def this_machine() -> Machine | None:
    """Return the architecture of this process; ``None`` if no filter is known for it."""
    return MACHINES.get(platform.machine()) if sys.maxsize > 2**32 else None


@cache
def syscall_numbers(machine: Machine) -> dict[str, int]:
    """Return the number of each system call of an architecture.

    Raises:
        OSError: the table, a part of the package, cannot be read.
    """
    rows = [
        line.split("\t")
        for line in _TABLE.read_text("ascii").splitlines()
        if not line.startswith("#")
    ]
    return {
        row[0]: int(row[machine.column]) for row in rows if row[machine.column] != _NONE
    }
