"""Lines as long as the cap lets them be, and what they cost the daemon.

Each gets a terminal frame, even where the id or the value that an answer would repeat
does not fit a frame. Nearly all of the processor time is taken by the event loop: for as
long as it, everybody waits. At the end, memory of connections that are closed must be
free, without a wait for the garbage collector.

    python -m fuzz.large
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from typing import Final

from bench.daemon import cpu_s
from fuzz.corpus import CLEAN, SurfaceName
from fuzz.judge import BrokenPromiseError
from fuzz.lines import say
from fuzz.target import LEAVES, Target, is_terminal, target
from inferd.limits.protocol import MAX_FRAME_BYTES
from tests.daemon.harness import Connection, eventually

MAX_CPU_S: Final = 10.0
"""Processor time of the daemon that one line may take: one that costs the product of its
width and its depth costs more."""
MAX_GROWTH_BYTES: Final = 4 * MAX_FRAME_BYTES
"""What the daemon's heap may be larger afterwards."""
N_REPEATS: Final = 20
"""Connections that each leave a buffer as long as the cap, if they leave anything."""
SETTLE_S: Final = 5.0
PATIENCE_S: Final = 120.0

V1: Final = b'{"id":"r","messages":[{"role":"user","content":"%b"}]}'
V2: Final = b'{"id":"r","messages":[{"role":"user","content":[%b]}]}'
TEXT: Final = b'{"type":"text","text":""}'
RESULT: Final = b'{"type":"tool_result","tool_call_id":"t","content":['


def _fill(template: bytes, unit: bytes, over: int = 0) -> bytes:
    """Repeat something as often as makes the whole as long as the cap, and so much over."""
    room = MAX_FRAME_BYTES - (len(template) - len(b"%b")) + over
    return template.replace(b"%b", unit * (room // len(unit)), 1)


def _blocks(depth: int, last: bytes) -> bytes:
    """Fill a frame with blocks in the innermost of so many results of tools."""
    inner = V2.replace(b"%b", RESULT * depth + b"%b" + last + b"]}" * depth)
    return _fill(inner, TEXT + b",")


def _id(surface: SurfaceName) -> bytes:
    return _fill(b'{"id":"%b",' + CLEAN[surface][1:], b"x")


LINES: Final[Mapping[str, tuple[SurfaceName, Callable[[], bytes]]]] = {
    "an id (v1)": ("v1", lambda: _id("v1")),
    "an id (v2)": ("v2", lambda: _id("v2")),
    "an id (embed)": ("embed", lambda: _id("embed")),
    "an id (rerank)": ("rerank", lambda: _id("rerank")),
    "an id that is refused": (
        "v1",
        lambda: _fill(b'{"id":"%b","messages":[]}', b"x"),
    ),
    "a role": (
        "v1",
        lambda: _fill(b'{"messages":[{"role":"%b","content":""}]}', b"x"),
    ),
    "a cache": ("v2", lambda: _fill(b'{"cache":"%b",' + CLEAN["v2"][1:], b"x")),
    "a tool_choice": (
        "v2",
        lambda: _fill(b'{"tool_choice":{"name":"%b"},' + CLEAN["v2"][1:], b"x"),
    ),
    "an attachment_id": (
        "v2",
        lambda: _fill(
            V2.replace(b"%b", b'{"type":"image","attachment_id":"%b"}'), b"x"
        ),
    ),
    "an append that lacks a field": (
        "v2",
        lambda: _fill(b'{"type":"append","id":"r","bytes":"%b"}', b"A"),
    ),
    "open attachments": (
        "v2",
        lambda: _fill(
            b'{"attachments":[%b{"kind":"hologram"}],' + CLEAN["v2"][1:],
            b'{"kind":"audio","id":"a","sample_rate":1,"open":true},',
        ),
    ),
    "a text": ("v1", lambda: _fill(V1, b"x")),
    "a text of escapes": ("v1", lambda: _fill(V1, b"\\u0001")),
    "one byte over the cap": ("v1", lambda: _fill(V1, b"x", over=1)),
    "brackets": ("v1", lambda: b"[" * MAX_FRAME_BYTES),
    "digits": ("v1", lambda: _fill(b'{"messages":[],"top_k":%b}', b"1")),
    "messages": (
        "v1",
        lambda: _fill(
            b'{"messages":[%b{"role":"user","content":""}]}',
            b'{"role":"user","content":""},',
        ),
    ),
    "biases": (
        "v2",
        lambda: (
            b'{"logit_bias":{%b},%b'
            % (b",".join(b'"%d":1' % at for at in range(4_000_000)), CLEAN["v2"][1:])
        ),
    ),
    "blocks": ("v2", lambda: _blocks(1, TEXT)),
    "blocks 300 deep": ("v2", lambda: _blocks(300, TEXT)),
    "blocks, one of them unknown": ("v2", lambda: _blocks(0, b'{"type":"hologram"}')),
    "blocks 15 deep, one unknown": ("v2", lambda: _blocks(15, b'{"type":"hologram"}')),
    "tokens": ("embed", lambda: _fill(b'{"tokens":[[%b1]]}', b"300,")),
    "texts of no tokens": ("embed", lambda: _fill(b'{"tokens":[%b[1]]}', b"[],")),
    "inputs": ("embed", lambda: _fill(b'{"input":[%b"x"]}', b'"x",')),
    "documents": (
        "rerank",
        lambda: _fill(b'{"query":"q","documents":[%b"x"]}', b'"x",'),
    ),
}


def main() -> int:
    """Send them one by one."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    findings = 0
    with target() as daemon:
        for name, (surface, make) in LINES.items():
            try:
                say(f"{name}: {send(daemon, surface, make())}")
            except (BrokenPromiseError, AssertionError, OSError) as error:
                findings += 1
                say(f"{name}: {error!r}")
        findings += say_what_stays(daemon)
        daemon.check(max_growth_bytes=MAX_GROWTH_BYTES)
        say(f"all as before; memory grew by {daemon.growth_bytes / 2**20:.1f} MiB")
    return 1 if findings else 0


def say_what_stays(daemon: Target) -> bool:
    """Send one line many times; tell whether memory of its connections is kept."""
    stays = keeps_memory(daemon, N_REPEATS)
    growth_mib = daemon.growth_bytes / 2**20
    say(
        f"{N_REPEATS} connections one after another: memory grew by {growth_mib:.1f} MiB"
    )
    return stays


def keeps_memory(daemon: Target, n_repeats: int) -> bool:
    """Tell whether memory of connections stays that are closed."""
    surface, make = LINES["one byte over the cap"]
    line = make()
    for _ in range(n_repeats):
        send(daemon, surface, line)
    is_freed = eventually(
        lambda: daemon.growth_bytes <= 2 * MAX_FRAME_BYTES, within_s=SETTLE_S
    )
    return not is_freed


def send(daemon: Target, surface: SurfaceName, line: bytes) -> str:
    """Send one line and read its answer; tell what it was and what it cost.

    Raises:
        BrokenPromiseError: the connection ended without it, or it cost too much.
    """
    before_s = cpu_s(daemon.daemon.pid)
    last = _last_frame(daemon, surface, line)
    taken_s = cpu_s(daemon.daemon.pid) - before_s
    if not is_terminal(last):
        raise BrokenPromiseError(f"no terminal frame, but {str(last)[:100]}")
    if taken_s > MAX_CPU_S:
        raise BrokenPromiseError(f"it took {taken_s:.1f} s of processor time")
    return f"{last.get('code', last['type'])}, {taken_s:.2f} s of processor time"


def _last_frame(daemon: Target, surface: SurfaceName, line: bytes) -> dict[str, object]:
    path = daemon.daemon.directory / LEAVES[surface]
    with Connection(path, timeout_s=PATIENCE_S) as connection:
        connection.pour([line, b"\n"])
        frame: dict[str, object] = {}
        while not is_terminal(frame):
            answer = connection.line()
            if answer is None:
                break
            frame = dict(json.loads(answer))
        return frame


if __name__ == "__main__":
    sys.exit(main())
