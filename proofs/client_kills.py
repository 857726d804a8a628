"""Thousands of requests of one client while the daemon is killed: one documented end each."""

import gc
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread

from inferd import client as library
from inferd.client import AsyncClient, Client, ClientError, NoDaemonError
from tests.daemon.bridge import bridge_to
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, mock
from torture.outcome import Context

KEY: Final = "client-kills"
NAME: Final = "One client, many threads and tasks, and a daemon that is killed"

N_AT_ONCE: Final = 64
TOKENS: Final = ("Hel", "lo ", "world")
TEXT: Final = "".join(TOKENS)
ANSWERED: Final = "answered"
DOCUMENTED: Final = frozenset(
    (
        ANSWERED,
        "BackendUnavailable",
        "ConnectionLostError",
        "NoDaemonError",
        "QueueFull",
    )
)
"""The ends that a call may have: ``docs/python.md`` names these exceptions."""
GROWTH_BYTES: Final = 8 * 1024 * 1024
"""What the memory may grow by from a third of the requests on: their own size is kept by
Python's allocator, and a leak of one answer each would be more."""
MIB: Final = 1024 * 1024


@dataclass
class Calls:
    """The calls of one client, and their ends.

    Args:
        n_calls: in all.
        kill: kills the daemon and starts it again.
        n_kills: how often.
    """

    n_calls: int
    kill: Callable[[], None]
    n_kills: int
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Resident bytes after each third."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _n_begun: int = 0

    def begin(self) -> bool:
        """Tell whether another call is to be made."""
        with self._lock:
            self._n_begun += 1
            return self._n_begun <= self.n_calls

    def end(self, text: str | None, error: Exception | None = None) -> bool:
        """Count a call; tell whether the daemon is to be killed now."""
        with self._lock:
            self.ends[ANSWERED if error is None else documented_name(error)] += 1
            if error is None and text != TEXT:
                self.wrong.append(f"the answer is {text!r}")
            n_ended = self.ends.total()
            if n_ended % max(1, self.n_calls // 3) == 0:
                gc.collect()
                self.sizes.append(resident_bytes())
            return n_ended % max(1, self.n_calls // (self.n_kills + 1)) == 0 and (
                n_ended < self.n_calls
            )


def documented_name(error: Exception) -> str:
    """Return the name of an exception that programs catch it by."""
    classes = [each.__name__ for each in type(error).__mro__]
    return next((name for name in classes if name in library.__all__), classes[0])


def resident_bytes() -> int:
    """Return the memory of this process."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def run(context: Context) -> None:
    """Send requests from threads and tasks, over sockets and a bridge, and kill the daemon."""
    n_calls = context.pick(short=192, full=10_000)
    n_kills = context.pick(short=1, full=5)
    with daemons() as make:
        backend = mock(tokens=[*TOKENS], token_delay_ms=1)
        limits = {"max_active": N_AT_ONCE, "max_queued": 2 * N_AT_ONCE}
        daemon = make({"backend": [backend], "admission": limits}).start()
        for name, ask in WAYS.items():
            calls = Calls(n_calls, lambda: restart(daemon), n_kills)
            ask({"path": daemon.directory}, calls)
            report(context, f"sockets_{name}", calls)
        with bridge_to(daemon) as bridge:
            for name, ask in WAYS.items():
                calls = Calls(n_calls // 4, lambda: restart(daemon), n_kills)
                ask({"url": bridge.address}, calls)
                report(context, f"bridge_{name}", calls)


def restart(daemon: DaemonProcess) -> None:
    """Kill a daemon and start it again."""
    daemon.stop(signal.SIGKILL)
    daemon.start()


def from_threads(place: Mapping[str, Any], calls: Calls) -> None:
    """Make the calls from threads that share a client."""
    with Client(**place, max_connections=N_AT_ONCE) as client:

        def work() -> None:
            while calls.begin():
                text, error = None, None
                try:
                    text = client.chat("hi").text
                except ClientError as failure:
                    error = failure
                if calls.end(text, error):
                    calls.kill()
                if isinstance(error, NoDaemonError):
                    client.wait_ready()

        with ThreadPoolExecutor(N_AT_ONCE) as threads:
            for each in [threads.submit(work) for _ in range(N_AT_ONCE)]:
                each.result()


def from_tasks(loop: str, place: Mapping[str, Any], calls: Calls) -> None:
    """Make the calls from tasks that share a client."""

    async def work(client: AsyncClient) -> None:
        while calls.begin():
            text, error = None, None
            try:
                text = (await client.chat("hi")).text
            except ClientError as failure:
                error = failure
            if calls.end(text, error):
                await to_thread.run_sync(calls.kill)
            if isinstance(error, NoDaemonError):
                await client.wait_ready()

    async def program() -> None:
        async with (
            AsyncClient(**place, max_connections=N_AT_ONCE) as client,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(N_AT_ONCE):
                tasks.start_soon(work, client)

    anyio.run(program, backend=loop)


WAYS: Final[Mapping[str, Callable[[Mapping[str, Any], Calls], None]]] = {
    "threads": from_threads,
    "trio": lambda place, calls: from_tasks("trio", place, calls),
    "asyncio": lambda place, calls: from_tasks("asyncio", place, calls),
}


def report(context: Context, name: str, calls: Calls) -> None:
    """Check the ends of all calls, and what they left."""
    for end, count in sorted(calls.ends.items()):
        context.counts[f"{name}_{end}"] = count
    unknown: Sequence[str] = sorted(calls.ends.keys() - DOCUMENTED)
    context.require(not unknown, f"{name}: calls ended with {', '.join(unknown)}")
    context.require(not calls.wrong, f"{name}: {calls.wrong[:1]}")
    context.require(
        calls.ends.total() == calls.n_calls,
        f"{name}: {calls.ends.total()} ends of {calls.n_calls} calls",
    )
    failed = calls.ends.total() - calls.ends[ANSWERED]
    context.expect(failed > 0, f"{name}: no call saw the daemon die")
    growth = max(0, calls.sizes[-1] - calls.sizes[0])
    context.figures[f"{name}_growth_mib"] = round(growth / MIB, 1)
    context.expect(growth < GROWTH_BYTES, f"{name}: the memory grew by {growth} bytes")
