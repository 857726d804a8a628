import array
import os
import socket
from contextlib import suppress

import pytest
import trio
import trio.testing

from fuzz.corpus import CLEAN
from fuzz.exchange import (
    Manner,
    broken_off,
    drains,
    exchange,
    foretell,
    is_borderline,
)
from fuzz.judge import BrokenPromiseError
from fuzz.target import LEAVES
from tests.cases import each_case

CANCEL = b'{"type":"cancel","id":"a"}\n'
REFUSAL = b'{"type":"error","id":"%b","code":"%b","message":""}\n'
OWED = b'{"id":"a","input":[]}\n'


@each_case(
    ("data", "ids", "closes"),
    [
        (b"", (), False),
        (OWED, ("a",), False),
        (OWED.strip(), ("a",), False),
        (OWED + CANCEL + OWED, ("a", "a"), False),
        (CANCEL, (), False),
        (OWED + b"\n" + OWED, ("a", ""), True),
        (b"[" + OWED, ("",), True),
        (b'{"type":"cancel"}', ("",), True),
    ],
)
def test_one_terminal_frame_is_foretold_for_each_line_that_is_read(data, ids, closes):
    due = foretell("embed", data)
    assert (due.ids, due.closes) == (ids, closes)


@each_case(
    ("data", "n_replies"),
    [(b"", 0), (b"{}", 1), (b"{}\n[\n{", 3), (b"x" * 65537, 1), (b"\n" * 3, 3)],
)
def test_a_reply_is_foretold_for_each_line_of_a_listener(data, n_replies):
    assert foretell("admin", data).ids == ("admin",) * n_replies


@each_case(
    ("line", "is_so"),
    [
        (b'{"command":"drain"}', True),
        (b'[\n{"command":"dr\\u0061in"}', True),
        (b'{"command":"drain"', False),
        (b'{"command":"drains"}', False),
    ],
)
def test_only_a_command_to_drain_drains(line, is_so):
    assert drains(line) is is_so


@each_case(
    ("surface", "data", "is_so"),
    [
        ("v2", b"[" * 1000, True),
        ("v2", b"[" * 500, False),
        ("v1", b"\n" * 500, False),
        ("admin", b"\n" * 500, True),
        ("admin", b"\n" * 100, False),
    ],
)
def test_what_depends_on_more_than_bytes_is_not_foretold(surface, data, is_so):
    assert is_borderline(surface, data) is is_so


@pytest.fixture
def came():
    """What came on each connection, with how many descriptors."""
    return []


@pytest.fixture
def answers(short_dir, came):
    async def serve(answer, nursery):
        async def reply(stream):
            async with stream:
                data, n_fds = b"", 0
                with suppress(trio.BrokenResourceError, ConnectionError):
                    while (got := await received(stream)) != (b"", 0):
                        data, n_fds = data + got[0], n_fds + got[1]
                came.append((data, n_fds))
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(answer)

        sock = trio.socket.socket(trio.socket.AF_UNIX)
        await sock.bind(str(short_dir / LEAVES["embed"]))
        sock.listen()
        listeners = [trio.SocketListener(sock)]
        nursery.start_soon(trio.serve_listeners, reply, listeners)
        return short_dir

    return serve


async def received(stream):
    """Read some bytes, and count and close the descriptors that came along."""
    data, aside, *_ = await stream.socket.recvmsg(65536, socket.CMSG_SPACE(4 * 32))
    fds = array.array("i")
    for *_, content in aside:
        fds.frombytes(content)
    for fd in fds:
        os.close(fd)
    return data, len(fds)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"", "due were"),
        (REFUSAL % (b"a", b"invalid_request") * 2, "no request"),
        (REFUSAL % (b"b", b"invalid_request"), "no request"),
        (REFUSAL % (b"a", b"internal"), "nobody's fault"),
        (REFUSAL % (b"a", b"backend_unavailable"), "nobody's fault"),
        (REFUSAL[:-1] % (b"a", b"invalid_request"), "half a frame"),
        (REFUSAL % (b"a", b"queue_full") + b"{", "half a frame"),
        (b"[]\n", "no JSON object"),
        (b"{'a':1}\n", "no JSON object"),
        (REFUSAL.replace(b'""', b'"%b"') % (b"a", b"cancelled", b"x" * 7000), "bound"),
    ],
)
async def test_a_daemon_that_answers_otherwise_is_found_out(answers, answer, what):
    async with trio.open_nursery() as nursery:
        directory = await answers(answer, nursery)
        with pytest.raises(BrokenPromiseError, match=what):
            await exchange(directory, "embed", OWED, Manner.PATIENT)
        with pytest.raises(BrokenPromiseError, match=what):
            await exchange(directory, "embed", OWED, Manner.DRIBBLING)
        nursery.cancel_scope.cancel()


async def test_a_daemon_that_hangs_is_found_out(short_dir, autojump_clock):
    sock = trio.socket.socket(trio.socket.AF_UNIX)
    await sock.bind(str(short_dir / LEAVES["v1"]))
    sock.listen()
    with sock, pytest.raises(BrokenPromiseError, match="hangs"):
        await exchange(short_dir, "v1", CLEAN["v1"], Manner.PATIENT)


async def test_one_that_answers_as_foretold_is_not(answers, came):
    async with trio.open_nursery() as nursery:
        answer = REFUSAL % (b"a", b"invalid_request")
        directory = await answers(answer, nursery)
        for manner in Manner:
            await exchange(directory, "embed", OWED, manner, ["sealed"])
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    sent = dict.fromkeys(Manner, OWED) | {Manner.BROKEN_OFF: broken_off(OWED)}
    assert came == [(sent[manner], 1) for manner in Manner]
