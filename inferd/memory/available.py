"""Memory available to this process: limited by the machine and by its control groups."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

UNBOUNDED: Final = 2**50
"""Bytes assumed if the kernel reports no number: no bound."""

_KIB: Final = 1024


class _GroupFiles(NamedTuple):
    """The files of a control group version, and their fields."""

    limit: str
    usage: str
    reclaimable: tuple[str, ...]
    """Lines of ``memory.stat`` for the page cache, which the kernel reclaims."""


_V1: Final = _GroupFiles(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)
_V2: Final = _GroupFiles(
    "memory.max", "memory.current", ("active_file", "inactive_file")
)


class GroupLimit(NamedTuple):
    """What a control group leaves its processes."""

    group: str
    """Its path in the hierarchy of groups, or the unit of systemd that it belongs to."""
    n_bytes: int


def available_bytes(
    proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")
) -> int:
    """Return the bytes that this process and its children may still take.

    That is the least of ``MemAvailable`` and of what each control group above the process
    has left. The page cache counts as available, as the kernel reclaims it.
    """
    left = (limit.n_bytes for limit in _of_groups(proc, groups))
    return min([_of_machine(proc), *left])


def group_limit(
    proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")
) -> GroupLimit | None:
    """Return the control group that leaves this process least; ``None`` for no limit."""
    bounded = (each for each in _of_groups(proc, groups) if each.n_bytes < UNBOUNDED)
    return min(bounded, key=lambda each: each.n_bytes, default=None)


def _of_machine(proc: Path) -> int:
    numbers = _numbers(proc / "meminfo")
    return numbers.get("MemAvailable:", UNBOUNDED // _KIB) * _KIB


def _of_groups(proc: Path, groups: Path) -> Iterator[GroupLimit]:
    """Yield what is left in each control group of this process and its ancestors."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            top, files = groups / "memory", _V1
        elif not controllers:
            top, files = groups, _V2
        else:
            continue
        own = top / path.lstrip("/")
        for group in (own, *own.parents):
            name = f"/{group.relative_to(top)}" if group != top else "/"
            yield GroupLimit(name, _left(group, files))
            if group == top:
                break


def _left(group: Path, files: _GroupFiles) -> int:
    """Return the bytes left in a group; no bound if it has no limit or is unreadable."""
    limit, usage = (_text(group / name).strip() for name in (files.limit, files.usage))
    if not (limit.isdecimal() and usage.isdecimal()):
        return UNBOUNDED
    numbers = _numbers(group / "memory.stat")
    reclaimable = sum(numbers.get(name, 0) for name in files.reclaimable)
    return max(0, int(limit) - int(usage) + reclaimable)


def _numbers(path: Path) -> dict[str, int]:
    """Parse a file whose lines are a name and a number."""
    fields = [line.split() for line in _text(path).splitlines() if line]
    return {name: int(number) for name, number, *_ in fields}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
