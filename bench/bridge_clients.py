"""Many clients of one bridge, with a scripted backend: what is lost, and who waits.

    python -m bench.bridge_clients            # both
    python -m bench.bridge_clients --only idle

``idle`` has 500 streams wait in the queue while 64 are written, and looks for answers that
are not whole. ``share`` times one token's answers alone, beside another token's 50 requests,
and beside as many of its own.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, Final

from bench.bridge import running_bridge
from bench.daemon import RunningDaemon, cpu_s, memory_mb, running_daemon
from bench.frames import spread
from bench.load.clients import clients_of
from bench.load.scene import Answer, Ask
from inferd import surfaces

N_IDLE: Final = 500
N_BUSY: Final = 64
BUSY_TOKENS: Final = 2000
TOKEN_DELAY_MS: Final = 10
N_OTHERS: Final = 50
"""Requests at once of the token that does not wait its turn."""
N_TIMED: Final = 20
SHARE_TOKENS: Final = 20
N_ACTIVE: Final = 4
PATIENCE_S: Final = 120.0


def main() -> int:
    """Run what is asked for; print the figures."""
    parts = {"idle": idle_streams, "share": shares}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=parts, action="append")
    arguments = parser.parse_args()
    figures = {name: parts[name]() for name in arguments.only or parts}
    print(json.dumps(figures, indent=2))
    return 0


# --- streams that wait ------------------------------------------------------------------


def idle_streams() -> dict[str, Any]:
    """Have streams wait in the queue while others are written."""
    tables = script(n_active=N_BUSY, n_queued=N_IDLE) + (
        f"[bridge]\nmax_connections = {2 * (N_IDLE + N_BUSY)}\n"
        f"max_requests = {2 * (N_IDLE + N_BUSY)}\n"
    )
    busy = [ask(BUSY_TOKENS) for _ in range(N_BUSY)]
    idle = [ask(1) for _ in range(N_IDLE)]
    with (
        running_daemon(tables, surfaces.V2.socket) as daemon,
        running_bridge(daemon) as bridge,
    ):
        before_mb = memory_mb(bridge.pid)
        began_at = time.monotonic()
        with (
            clients_of("bridge", bridge.address) as busy_ones,
            clients_of("bridge", bridge.address) as idle_ones,
            ThreadPoolExecutor(2) as threads,
        ):
            written = threads.submit(busy_ones.play, busy)
            time.sleep(1)  # all of them have a permit
            waited = threads.submit(idle_ones.play, idle)
            answers = [*written.result(), *waited.result()]
        return {
            "streams": len(answers),
            "lost": n_lost(answers, [*busy, *idle]),
            "seconds": round(time.monotonic() - began_at, 1),
            "waited_s": spread(
                [each.times[0] - each.sent_at for each in answers[N_BUSY:]]
            ),
            "bridge_mb": {
                "before": round(before_mb, 1),
                "after": round(memory_mb(bridge.pid), 1),
                "peak": round(peak_mb(bridge.pid), 1),
            },
            "bridge_cpu_s": round(cpu_s(bridge.pid), 1),
        }


def ask(n_tokens: int) -> Ask:
    """Ask for an answer of exactly so many tokens."""
    return Ask(turns=[("user", "go on")], max_tokens=n_tokens)


def n_lost(answers: Sequence[Answer], asks: Sequence[Ask]) -> int:
    """Count the answers that are not whole."""
    wanted = zip(answers, asks, strict=True)
    return sum(
        each.n_tokens != ask.max_tokens or len(each.text) != ask.max_tokens
        for each, ask in wanted
    )


def peak_mb(pid: int) -> float:
    """Give the most memory that a process has had, in MB (10⁶ bytes)."""
    lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(peak) * 1024 / 1e6


# --- two tokens -------------------------------------------------------------------------


def shares() -> dict[str, Any]:
    """Time answers of one token beside those of another, and beside its own."""
    with tempfile.TemporaryDirectory(prefix="inferd-bench-") as scratch:
        file = Path(scratch) / "tokens.json"
        tables = script(n_active=N_ACTIVE, n_queued=2 * N_OTHERS) + (
            f"[access]\ngateways = {{ uids = [{os.getuid()}] }}\n"
            f'[bridge]\ngateway = true\ntokens = "{file}"\nmax_requests = 256\n'
        )
        with running_daemon(tables, surfaces.V2.socket) as daemon:
            one, other = (made_token(daemon, name) for name in ("one", "other"))
            with running_bridge(daemon) as bridge:
                return share_figures(bridge.address, one, other)


def share_figures(address: str, one: str, other: str) -> dict[str, Any]:
    """Time one token's answers, alone and beside others."""
    return {
        "scripted_ms": SHARE_TOKENS * TOKEN_DELAY_MS,
        "alone_ms": timed(address, one),
        "beside_another_token_ms": timed(address, one, beside=other),
        "beside_its_own_ms": timed(address, one, beside=one),
    }


def made_token(daemon: RunningDaemon, name: str) -> str:
    """Have the command line make a token."""
    command = (sys.executable, "-m", "inferd", "bridge", "token", "add", name)
    config = ("--config", str(daemon.config))
    return subprocess.check_output([*command, *config], text=True).strip()


def timed(address: str, token: str, *, beside: str = "") -> Mapping[str, float]:
    """Time answers of a token, one after another, while a token has others made."""
    ended = Event()

    def go_on(_: int) -> None:
        while not ended.is_set():
            answer_ms(address, beside)

    n_others = N_OTHERS if beside else 0
    with ThreadPoolExecutor(N_OTHERS) as threads:
        others = [threads.submit(go_on, number) for number in range(n_others)]
        try:
            if beside:
                answer_ms(address, beside)  # by then the queue is full of theirs
            return spread([answer_ms(address, token) for _ in range(N_TIMED)], digits=1)
        finally:
            ended.set()
            raise_failures(others)


def raise_failures(others: Sequence[Future[None]]) -> None:
    """Wait for all; raise what one raised."""
    for each in others:
        each.result()


def answer_ms(address: str, token: str) -> float:
    """Have an answer; give the milliseconds it took."""
    body = {
        "messages": [{"role": "user", "content": "go on"}],
        "max_tokens": SHARE_TOKENS,
    }
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    began_at = time.monotonic()
    try:
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise RuntimeError(text.decode(errors="replace"))
    return (time.monotonic() - began_at) * 1e3


# --- both -------------------------------------------------------------------------------


def script(*, n_active: int, n_queued: int) -> str:
    """Configure a daemon whose backend writes single letters, some ms each."""
    return (
        f"[admission]\nmax_active = {n_active}\nmax_queued = {n_queued}\n"
        f'[[backend]]\nname = "mock"\nkind = "mock"\ntoken_delay_ms = {TOKEN_DELAY_MS}\n'
        f"tokens = {json.dumps(['x'] * BUSY_TOKENS)}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
