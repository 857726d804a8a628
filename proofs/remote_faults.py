"""Faults between the daemon and a remote engine: one terminal frame each, and the breaker."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from inferd.config.kinds.remote_limits import MAX_FAILURES, OPEN_S
from proofs.faulty_proxy import (
    RETRY_AFTER_S,
    STATUSES,
    WHOLE,
    Break,
    Fault,
    FaultyProxy,
    faults_of,
)
from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import Table, mock
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, MakeDaemon
from torture.outcome import Context

KEY: Final = "remote-faults"
NAME: Final = "Faults between the daemon and a remote engine"

TOKENS: Final = ("Once", " upon", " a", " time", " there", " was", " a", " mouse.")
TEXT: Final = "".join(TOKENS)
KEY_TEXT: Final = "sk-fault-0123456789"
KINDS: Final = ("openai", "anthropic", "ollama", "inferd", "sockets")
MOST_GARBAGE_BYTES: Final = 200
WAIT_S: Final = 2.0
"""Seconds after which the daemon gives a stalled answer up: as long for a connection, for a
first token and between two. An answer is held back in one of six faults, so that the defaults
would take hours; those of the breaker are what is tested."""
SLACK_S: Final = 3.0
"""Seconds after ``OPEN_S`` until the next request is sent: other processes compute, too."""
N_AT_ONCE: Final = 6
"""Requests at once while one is to be let through."""
UNAVAILABLE: Final = "backend_unavailable"
SUSPENDED: Final = ("is not asked for a while", "backend not ready")
"""What refusals without a question to the remote say: the worker's, and the daemon's once it
has been told."""


@dataclass
class Lane:
    """A backend with its proxy; its requests are sent one after another."""

    name: str
    daemon: DaemonProcess
    proxy: FaultyProxy
    rng: Random
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def ask(self) -> list[dict[str, Any]]:
        """Send a request; give the frames of its answer, and of any after it."""
        frames = self.daemon.ask(model=self.name, max_tokens=50)
        ends = [each for each in frames if each["type"] in ("done", "error")]
        self.require(
            len(ends) == 1 and frames[-1] is ends[0], f"terminal frames: {len(ends)}"
        )
        return frames

    def require(self, is_so: object, otherwise: str) -> None:
        """Take note of a promise that was not kept."""
        if not is_so:
            self.problems.append(f"{self.name}: {otherwise}")


def run(context: Context) -> None:
    """Break answers at random bytes; then have the breaker open, try and close."""
    n_faults = context.pick(short=40, full=1000)
    n_lanes = context.pick(short=len(KINDS), full=2 * len(KINDS))
    with ExitStack() as stack:
        lanes = stack.enter_context(_lanes(n_lanes, context))
        with ThreadPoolExecutor(n_lanes) as threads:
            shares = [n_faults // n_lanes] * n_lanes
            _wait_all(threads, _strike, zip(lanes, shares, strict=True))
            _wait_all(threads, _open_breaker, ((each,) for each in lanes))
            if context.pick(short=False, full=True):
                _wait_all(threads, _try_again, ((each,) for each in lanes))
                context.counts["breakers_tried"] = n_lanes
        _report(context, lanes)


def _wait_all(threads: ThreadPoolExecutor, work: Any, of: Any) -> None:
    """Have all of it done; raise what was raised."""
    for each in [threads.submit(work, *arguments) for arguments in of]:
        each.result()


@contextmanager
def _lanes(n_lanes: int, context: Context) -> Iterator[Sequence[Lane]]:
    """Run a bridge, proxies before it, and a daemon that asks them."""
    with daemons() as make, ExitStack() as stack:
        behind = make({"backend": [mock(tokens=[*TOKENS])]}).start()
        bridge = stack.enter_context(bridge_to(behind))
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="faults-")))
        kinds = [*itertools.islice(itertools.cycle(KINDS), n_lanes)]
        proxies: list[FaultyProxy] = []
        backends: list[Table] = []
        for number, kind in enumerate(kinds):
            directory = scratch / str(number)
            directory.mkdir()
            proxy = (
                FaultyProxy(
                    behind.directory / "infer.v2.sock", directory / "infer.v2.sock"
                )
                if kind == "sockets"
                else FaultyProxy(bridge.port)
            )
            proxies.append(stack.enter_context(closing(proxy)))
            backends.append(_backend(f"{kind}-{number}", kind, proxy, directory))
        daemon = _front(make, backends)
        yield [
            Lane(str(table["name"]), daemon, proxy, Random(f"{context.seed}-{number}"))
            for number, (table, proxy) in enumerate(zip(backends, proxies, strict=True))
        ]


def _backend(name: str, kind: str, proxy: FaultyProxy, directory: Path) -> Table:
    table: Table = {
        "name": name,
        "kind": "inferd" if kind == "sockets" else kind,
        "model": "mock",
        "connect_timeout_s": WAIT_S,
        "first_token_timeout_s": WAIT_S,
        "stall_timeout_s": WAIT_S,
    }
    if kind == "sockets":
        return {**table, "base_url": f"sockets:{directory}"}
    url = f"http://127.0.0.1:{proxy.port}"
    return {**table, "base_url": url, "api_key_env": "FAULT_KEY"}


def _front(make: MakeDaemon, backends: Sequence[Table]) -> DaemonProcess:
    """Run the daemon that asks; a request that is held back keeps no other waiting."""
    admission = {"max_active": N_AT_ONCE * len(backends)}
    tables = {"admission": admission, "backend": [*backends]}
    return make(tables, environ={"FAULT_KEY": KEY_TEXT}).start()


# --- faults -----------------------------------------------------------------------------


def _strike(lane: Lane, n_faults: int) -> None:
    """Break answers; one that is whole follows each, so that the breaker stays closed."""
    _whole(lane)
    faults = itertools.cycle(faults_of(has_lines=lane.name.startswith("sockets")))
    for fault in itertools.islice(faults, n_faults):
        n_garbage = lane.rng.randrange(1, MOST_GARBAGE_BYTES)
        at = lane.rng.randrange(lane.proxy.n_bytes)
        lane.proxy.next = Break(fault, at, lane.rng.randbytes(n_garbage))
        n_before = lane.proxy.n_requests
        frames = lane.ask()
        lane.require(lane.proxy.n_requests == n_before + 1, f"{fault}: was repeated")
        _check(lane, fault, frames)
        lane.counts[fault.value] += 1
        _whole(lane)


def _whole(lane: Lane) -> None:
    lane.proxy.next = WHOLE
    frames = lane.ask()
    lane.require(
        frames[-1]["type"] == "done" and frames[-1]["content"] == TEXT,
        f"a whole answer is {frames[-1]}",
    )
    lane.counts["whole"] += 1


def _check(lane: Lane, fault: Fault, frames: Sequence[dict[str, Any]]) -> None:
    """Check how a broken answer has ended: with its text, or with one typed error."""
    *tokens, last = frames
    came = "".join(each["content"] for each in tokens if each["type"] == "token")
    if fault is not Fault.GARBAGE:  # which may be text
        lane.require(TEXT.startswith(came), f"{fault}: the text is {came!r}")
    if last["type"] == "done":
        lane.require(fault not in STATUSES, f"{fault}: done")
        lane.require(
            fault is Fault.GARBAGE or came == TEXT, f"{fault}: done with {came!r}"
        )
        lane.counts["after_the_end"] += 1
        return
    lane.require(last["code"] == UNAVAILABLE, f"{fault}: {last['code']}")
    lane.require(not _is_refusal(last), f"{fault}: suspended too early")
    lane.require(KEY_TEXT not in last["message"], f"{fault}: the key is told")
    if fault is Fault.RATE_LIMIT:
        told = last.get("retry_after_ms")
        lane.require(told == RETRY_AFTER_S * 1000, f"{fault}: retry after {told}")
    lane.counts["errors"] += 1
    lane.counts["errors_in_the_middle"] += bool(came)


# --- the breaker ------------------------------------------------------------------------


def _open_breaker(lane: Lane) -> None:
    """Fail so often that the remote is not asked any more."""
    lane.proxy.next = Break(Fault.CLOSE)
    n_before = lane.proxy.n_requests
    for _ in range(MAX_FAILURES):
        lane.require(not _is_refusal(lane.ask()[-1]), "suspended after fewer failures")
    for _ in range(2):
        [refusal] = lane.ask()
        lane.require(_is_refusal(refusal), f"suspended: {refusal}")
    asked = lane.proxy.n_requests - n_before
    lane.require(asked == MAX_FAILURES, f"asked {asked} times until it was suspended")
    lane.counts["breakers_opened"] += 1


def _try_again(lane: Lane) -> None:
    """Let one request try the remote, which fails; and then one that closes the breaker."""
    time.sleep(OPEN_S + SLACK_S)
    lane.proxy.next = Break(Fault.STALL)
    n_before = lane.proxy.n_requests
    with ThreadPoolExecutor(N_AT_ONCE) as threads:
        answers = [threads.submit(lane.ask) for _ in range(N_AT_ONCE)]
        lasts = [each.result()[-1] for each in answers]
    n_refused = sum(map(_is_refusal, lasts))
    is_failure = all(each["type"] == "error" for each in lasts)
    is_one = is_failure and n_refused == N_AT_ONCE - 1
    lane.require(is_one, f"half-open: {lasts}")
    asked = lane.proxy.n_requests - n_before
    lane.require(asked == 1, f"half-open: {asked} of {N_AT_ONCE} were let through")
    lane.proxy.next = WHOLE
    last = lane.ask()[-1]
    lane.require(_is_refusal(last), f"it has not opened again: {last}")
    time.sleep(OPEN_S + SLACK_S)
    for _ in range(2):
        _whole(lane)


def _is_refusal(last: Mapping[str, Any]) -> bool:
    """Tell whether the remote was not asked."""
    message = last.get("message", "")
    return last.get("code") == UNAVAILABLE and any(
        each in message for each in SUSPENDED
    )


def _report(context: Context, lanes: Sequence[Lane]) -> None:
    for lane in lanes:
        context.problems += lane.problems
    counts = sum((lane.counts for lane in lanes), Counter())
    context.counts |= dict(sorted(counts.items()))
    daemon = lanes[0].daemon
    told = daemon.stderr() + "".join(map(str, daemon.log_lines()))
    context.require(KEY_TEXT not in told, "the key is in the log")
    crashed = [each for each in daemon.log_lines() if each["msg"] == "worker.exited"]
    context.require(not crashed, f"workers have ended: {crashed[:1]}")
    context.notes.append(
        f"lanes: {', '.join(lane.name for lane in lanes)}, each its own backend behind "
        "its own proxy, before this project's bridge or its socket"
    )
