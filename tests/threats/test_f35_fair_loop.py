import socket
from contextlib import suppress
from typing import Final

import pytest

from tests.daemon.harness import DaemonProcess, MakeDaemon, generate, mock, to_line
from tests.daemon.users import (
    ANNA,
    BERT,
    SHARED_GROUP,
    as_user,
    connect_as,
    needs_root,
    open_to_all,
)

pytestmark = [pytest.mark.slow, needs_root]

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


def n_answered(hogs: list[socket.socket]) -> int:
    """Count the frames that the flood has got by now."""
    n_frames = 0
    for hog in hogs:
        with suppress(BlockingIOError):
            n_frames += hog.recv(1 << 22).count(b"\n")
    return n_frames
