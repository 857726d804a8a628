import select
import socket
from contextlib import suppress
from typing import Final

import pytest

from tests.daemon.harness import (
    DaemonProcess,
    MakeDaemon,
    blocks,
    generate,
    mock,
    to_line,
)
from tests.daemon.users import (
    ANNA,
    BERT,
    SHARED_GROUP,
    as_user,
    connect_as,
    needs_root,
    open_to_all,
)

pytestmark = [pytest.mark.slow, pytest.mark.alone, needs_root]

N_HOGS: Final = 60
"""Connections of the one who floods."""
N_LINES: Final = 600
"""That it sends on each: more than are read ahead."""

REFUSED: Final = to_line({"id": "r", "messages": []})
FLOODS: Final = {
    "refusals": ("infer.sock", REFUSED),
    "cancels": ("infer.sock", to_line({"type": "cancel", "id": "r"})),
    "appends": (
        "infer.v2.sock",
        to_line({"type": "append", "id": "r", "attachment_id": "a", "bytes": ""}),
    ),
    "strict requests": (
        "infer.sock",
        to_line({"strict": True, "messages": [], **dict.fromkeys("abcdefgh", 1)}),
    ),
    "unknown blocks": (
        "infer.v2.sock",
        to_line({"messages": [{"role": "user", "content": [{"type": "z"}]}]}),
    ),
}


def start(make_daemon: MakeDaemon, **tables) -> DaemonProcess:
    config = {"listen": {"group": SHARED_GROUP}, "backend": [mock()], **tables}
    return open_to_all(make_daemon(config)).start()


def flooding(daemon: DaemonProcess, leaf: str, line: bytes) -> list[socket.socket]:
    """Send many lines on many connections; the last of each is a request that is refused."""
    hogs = []
    with as_user(ANNA, 100):
        for _ in range(N_HOGS):
            hog = socket.socket(socket.AF_UNIX)
            hog.connect(f"{daemon.directory}/{leaf}")
            hog.setblocking(False)
            hogs.append(hog)
    for hog in hogs:
        with suppress(BlockingIOError):  # not all of it fits
            hog.send(line * N_LINES + REFUSED)
    return hogs


@pytest.mark.parametrize("kind", FLOODS)
def test_another_user_is_served_while_one_floods(make_daemon: MakeDaemon, kind: str):
    daemon = start(make_daemon)
    leaf, line = FLOODS[kind]
    opened = connect_as(daemon, BERT)
    hogs = flooding(daemon, leaf, line)
    [refusal] = opened.ask({"messages": []})
    assert refusal["code"] == "invalid_request"
    n_on_open = n_answered(hogs)
    assert connect_as(daemon, BERT).ask(generate())[-1]["type"] == "done"
    assert n_on_open < N_HOGS * N_LINES / 4
    for hog in hogs:
        hog.close()


LARGE: Final = {
    "biases": (
        "infer.v2.sock",
        b'{"messages":[{"role":"user","content":[]}],"logit_bias":{%b}}',
        b'"%d":0',
    ),
    "messages": (
        "infer.sock",
        b'{"messages":[%b]}',
        b'{"role":"user","content":""}',
    ),
    "unknown fields": ("infer.sock", b'{"messages":[],"x":[%b]}', b"[]"),
    "strict": (
        "infer.sock",
        b'{"strict":true,"messages":[%b]}',
        b'{"role":"user","content":""}',
    ),
    "inputs": ("infer.embed.sock", b'{"input":[%b]}', b'"a"'),
    "unknown blocks": (
        "infer.v2.sock",
        b'{"messages":[{"role":"user","content":[%b]}]}',
        b'{"type":"z"}',
    ),
    "tools": (
        "infer.v2.sock",
        (
            b'{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],'
            b'"tools":[%b]}'
        ),
        b'{"name":"f%d","description":"","input_schema":{}}',
    ),
}
"""Lines of a few MiB of something, which take a daemon's loop some tenths of a second."""
LARGE_BYTES: Final = 4_000_000


def large_line(kind: str) -> tuple[str, bytes]:
    leaf, frame, part = LARGE[kind]
    numbered = [
        part % n if b"%d" in part else part for n in range(LARGE_BYTES // len(part))
    ]
    return leaf, frame % b",".join(numbered) + b"\n"


@pytest.mark.parametrize("kind", LARGE)
def test_others_are_answered_while_a_large_line_is_read(
    make_daemon: MakeDaemon, kind: str
):
    daemon = start(make_daemon)
    leaf, line = large_line(kind)
    with as_user(ANNA, 100):
        hog = daemon.connect(leaf)
    other = connect_as(daemon, BERT)
    hog.pour([line])
    n_before = 0
    while not select.select([hog._sock], [], [], 0)[0]:
        assert other.ask(generate())[-1]["type"] == "done"
        n_before += 1
    assert hog.frame()["code"] == "invalid_request"
    assert n_before > 1
    assert daemon.worker_pids()


def test_a_large_request_is_answered_like_a_short_one(make_daemon: MakeDaemon):
    daemon = start(make_daemon)
    workers = daemon.worker_pids()
    text = "x" * 200_000
    for _ in range(2):
        frames = connect_as(daemon, ANNA).ask(generate(text))
        assert [frame["type"] for frame in frames][-1] == "done"
        v2 = connect_as(daemon, ANNA, leaf="infer.v2.sock")
        assert v2.ask(blocks(text))[-1]["type"] == "done"
    assert daemon.worker_pids() == workers


def n_answered(hogs: list[socket.socket]) -> int:
    """Count the frames that the flood has got by now."""
    n_frames = 0
    for hog in hogs:
        with suppress(BlockingIOError):
            n_frames += hog.recv(1 << 22).count(b"\n")
    return n_frames
