"""How much memory there is for us: what the machine and our control groups leave."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

UNKNOWN: Final = 2**50
"""Bytes assumed where the kernel does not tell: no bound."""

_KIB: Final = 1024


class _Accounts(NamedTuple):
    """Where a version of control groups keeps its numbers."""

    limit: str
    usage: str
    reclaimable: tuple[str, ...]
    """Lines of ``memory.stat``: files' pages, which give way."""


_V1: Final = _Accounts(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)
_V2: Final = _Accounts("memory.max", "memory.current", ("active_file", "inactive_file"))


def available_bytes(
    proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")
) -> int:
    """Tell how many bytes this process and its children may take from here on.

    That is the least of what the kernel calls available, and what each control group
    above us has left. Pages of files count as available: they give way.
    """
    return min([_of_machine(proc), *_of_groups(proc, groups)])


def _of_machine(proc: Path) -> int:
    known = _numbers(proc / "meminfo")
    return known.get("MemAvailable:", UNKNOWN // _KIB) * _KIB


def _of_groups(proc: Path, groups: Path) -> Iterator[int]:
    """Give what each of our control groups has left, the outermost ones included."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            top, accounts = groups / "memory", _V1
        elif not controllers:
            top, accounts = groups, _V2
        else:
            continue
        own = top / path.lstrip("/")
        for group in (own, *own.parents):
            yield _left(group, accounts)
            if group == top:
                break


def _left(group: Path, accounts: _Accounts) -> int:
    """Tell what a group may still take; no bound where it has none or cannot be seen."""
    limit, usage = (
        _text(group / each).strip() for each in (accounts.limit, accounts.usage)
    )
    if not (limit.isdecimal() and usage.isdecimal()):
        return UNKNOWN
    known = _numbers(group / "memory.stat")
    reclaimable = sum(known.get(name, 0) for name in accounts.reclaimable)
    return max(0, int(limit) - int(usage) + reclaimable)


def _numbers(path: Path) -> dict[str, int]:
    """Read a file whose lines are a name and a number."""
    fields = [line.split() for line in _text(path).splitlines() if line]
    return {name: int(number) for name, number, *_ in fields}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
