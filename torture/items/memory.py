"""R12: a worker that may have no more memory, or is killed for want of it."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from fuzz.process import rss_bytes
from inferd.limits.server import OFFLOAD_LINE_BYTES
from tests.daemon.harness import mock
from torture.clients import ask, text
from torture.litter import check_left, settled
from torture.load import eventually
from torture.outcome import Context
from torture.victim import Victim, running

KEY: Final = "R12"
NAME: Final = "A worker without memory"

MIB: Final = 1 << 20
PROMPT_BYTES: Final = 40 * MIB
"""Of a request that the daemon takes and the worker has no room for."""
ROOM_BYTES: Final = 16 * MIB
"""What the worker may have beside what it has."""
GROWTH_MIB: Final = 400
"""What the daemon may hold of such a request afterwards; the allocator keeps some."""
CODES: Final = ("", "backend_unavailable")
"""How it may end: another worker may have room, and is given what had not run yet."""
CGROUPS: Final = Path("/sys/fs/cgroup/memory")
"""Of version 1, where a process can be moved without the rest of the machine."""


def run(context: Context) -> None:
    """Give a worker too little, then ask for much."""
    with running(Victim({"backend": [mock()]})) as daemon:
        daemon.ask("x" * OFFLOAD_LINE_BYTES)  # what reads large lines is there now
        before, rss = settled(daemon), rss_bytes(daemon.pid)
        for _ in range(context.pick(short=1, full=10)):
            [worker] = daemon.workers()
            _starve(worker)
            trio.run(_ask_for_much, context, daemon, "address_space")
            _oom(context, daemon)
        grown = (rss_bytes(daemon.pid) - rss) / MIB
        context.figures["rss_growth_mib"] = round(grown, 1)
        context.require(grown < GROWTH_MIB, f"the daemon grew by {grown:.0f} MiB")
        check_left(context, daemon, before)


def _starve(worker: int) -> None:
    statm = Path(f"/proc/{worker}/statm").read_text()
    n_bytes = int(statm.split()[0]) * os.sysconf("SC_PAGE_SIZE") + ROOM_BYTES
    resource.prlimit(worker, resource.RLIMIT_AS, (n_bytes, n_bytes))


def _oom(context: Context, daemon: Victim) -> None:
    [worker] = daemon.workers()
    try:
        with _cgroup(worker):
            trio.run(_ask_for_much, context, daemon, "cgroup")
    except OSError as error:
        note = f"out of memory in a cgroup: skipped, {error.strerror}"
        if note not in context.notes:
            context.notes.append(note)


@contextmanager
def _cgroup(worker: int) -> Iterator[None]:
    """Have a process in a group that may take little memory while inside.

    Raises:
        OSError: this machine has no such groups, or not for us.
    """
    group = CGROUPS / f"inferd-torture-{worker}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(ROOM_BYTES))
        (group / "cgroup.procs").write_text(str(worker))
        yield
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (CGROUPS / "cgroup.procs").write_text(pid)
        group.rmdir()


async def _ask_for_much(context: Context, daemon: Victim, how: str) -> None:
    """Ask for more than the worker has room for; then others are served again."""
    [worker] = daemon.workers()
    much = await ask(daemon.directory, text("x" * PROMPT_BYTES), "much")
    is_told = much.is_whole and much.code in CODES
    died = await eventually(lambda: worker not in daemon.workers())
    context.require(died, f"{how}: the worker had room enough")
    context.require(is_told, f"{how}: {str(much.last)[:300]}")
    little = await ask(daemon.directory, text("hello"), "little")
    context.require(little.is_whole and not little.code, f"then: {little.last}")
    context.counts[how] = context.counts.get(how, 0) + 1
