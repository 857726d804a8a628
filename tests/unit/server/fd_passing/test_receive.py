import os
import resource
import socket
from contextlib import contextmanager
from itertools import pairwise

import pytest
import trio
from hypothesis import given, settings, strategies as st

from inferd.errors import InvalidRequestError, TooManyDescriptorsError
from inferd.limits.protocol import MAX_ATTACHMENTS
from inferd.server.fd_passing.quota import NO_FDS, FdQuota
from inferd.server.fd_passing.receive import FdsByLine, receive_with_fds
from tests.fakes.fds import content_of, memfd, memfds, n_open, send_with
from tests.fakes.streams import open_pair

ANNA = 70_001
Cuts = list[tuple[int, bool]]
Line = tuple[int, Cuts]
PIECES = st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=5)
"""Of a line: where it is cut, and whether a descriptor goes with what follows."""


def some(n_fds: int = 1) -> tuple[int, ...]:
    return tuple(memfd() for _ in range(n_fds))


@pytest.fixture
def fds_by_line():
    n_before = n_open()
    made = FdsByLine(FdQuota(1000), ANNA)
    yield made
    made.close()
    assert n_open() == n_before


# --- by line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "data", "line"),
    [
        (b"", b"a", 0),
        (b"", b"a\n", 0),
        (b"", b"a\nb", 1),
        (b"", b"a\nb\n", 1),
        (b"", b"\n\n", 1),
        (b"a", b"\n", 0),
        (b"a\n", b"b", 1),
        (b"a\nb", b"c\nd\n", 2),
    ],
)
def test_they_belong_to_the_line_of_the_last_byte(fds_by_line, before, data, line):
    fds_by_line.feed(before)
    fds = some()
    fds_by_line.feed(data, fds)
    taken = [fds_by_line.take_line(n) for n in range(5)]
    assert [each.fds for each in taken] == [fds if n == line else () for n in range(5)]
    taken[line].close()


def test_a_line_may_have_several_in_the_order_they_came(fds_by_line):
    first, second, third = some(2), some(1), some(1)
    fds_by_line.feed(b"a", first)
    fds_by_line.feed(b"b", second)
    fds_by_line.feed(b"\nc", third)
    assert fds_by_line.cost_bytes > 0
    line_fds = fds_by_line.take_line(0)
    assert line_fds.fds == first + second
    assert fds_by_line.take_line(1).fds == third
    line_fds.close()
    for fd in third:
        os.close(fd)


def test_taken_descriptors_are_removed(fds_by_line):
    fds_by_line.feed(b"a\n", some())
    fds_by_line.take_line(0).close()
    assert fds_by_line.take_line(0) is NO_FDS
    assert fds_by_line.cost_bytes == 0


def test_a_line_that_comes_in_bytes_with_descriptors_never_has_more_than_it_may(
    fds_by_line,
):
    n_before = n_open()
    for _ in range(3 * MAX_ATTACHMENTS):
        fds_by_line.feed(b"x", some())
        assert n_open() - n_before <= MAX_ATTACHMENTS
    fds_by_line.feed(b"\n")
    assert isinstance(fds_by_line.take_line(0).refusal, InvalidRequestError)


def test_descriptors_that_are_not_taken_are_closed():
    n_before, fd_quota = n_open(), FdQuota(1000)
    fds_by_line = FdsByLine(fd_quota, ANNA)
    fds_by_line.feed(b"a\n", some(2))
    fds_by_line.feed(b"b", some(1))
    fds_by_line.close()
    assert (n_open(), fd_quota.n_held, fds_by_line.cost_bytes) == (n_before, 0, 0)


# --- over a socket ----------------------------------------------------------------------


async def read_line(
    stream: trio.SocketStream, fds_by_line: FdsByLine, data: bytearray
) -> bytes:
    while b"\n" not in data:
        await trio.lowlevel.wait_readable(stream.socket)
        got = receive_with_fds(stream, fds_by_line)
        assert got
        data += got
    line, _, rest = data.partition(b"\n")
    data[:] = rest
    return bytes(line)


async def test_what_is_sent_with_a_line_comes_with_it(fds_by_line):
    async with open_pair() as (ours, theirs):
        with memfds(b"one", b"two") as fds:
            await send_with(theirs, b"line\n", fds)
        assert receive_with_fds(ours, fds_by_line) == b"line\n"
    line_fds = fds_by_line.take_line(0)
    assert [content_of(fd) for fd in line_fds.fds] == [b"one", b"two"]
    assert not any(map(os.get_inheritable, line_fds.fds))
    line_fds.close()


async def test_of_more_than_may_come_at_once_none_is_kept(fds_by_line):
    n_before = n_open()
    async with open_pair() as (ours, theirs):
        with memfds(*[b""] * (MAX_ATTACHMENTS + 1)) as fds:
            await send_with(theirs, b"line\n", fds)
        receive_with_fds(ours, fds_by_line)
        assert isinstance(fds_by_line.take_line(0).refusal, InvalidRequestError)
    assert n_open() == n_before


async def test_a_line_whose_descriptors_exceed_the_process_limit_is_refused(
    fds_by_line,
):
    async with open_pair() as (ours, theirs):
        with memfds(b"one") as fds:
            await send_with(theirs, b"line\n", fds)
        with none_left():
            assert receive_with_fds(ours, fds_by_line) == b"line\n"
    assert isinstance(fds_by_line.take_line(0).refusal, TooManyDescriptorsError)


@contextmanager
def none_left():
    """Lower the descriptor limit to what is open, while inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    [lowest_free] = some()
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_eof_is_empty(fds_by_line):
    async with open_pair() as (ours, theirs):
        await theirs.send_eof()
        assert receive_with_fds(ours, fds_by_line) == b""


async def test_a_broken_connection_is_an_error_or_eof(fds_by_line):
    async with open_pair() as (ours, theirs):
        await ours.send_all(b"unread")
        await theirs.aclose()
        with pytest.raises(OSError, match="reset"):
            receive_with_fds(ours, fds_by_line)


async def test_receiving_does_not_block(fds_by_line):
    async with open_pair() as (ours, _):
        with pytest.raises(BlockingIOError):
            receive_with_fds(ours, fds_by_line)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    lines=st.lists(st.tuples(st.integers(0, 300), PIECES), max_size=8),
    n_at_once=st.integers(1, 400),
)
def test_however_lines_are_sent_and_read_each_has_its_own(lines, n_at_once):
    n_before = n_open()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inferd.server.fd_passing.receive.READ_BYTES", n_at_once)
        trio.run(exchange, lines)
    assert n_open() == n_before


async def exchange(lines: list[Line]) -> None:
    """Send each line in pieces, some with a descriptor of its own, and read them all."""
    fds_by_line = FdsByLine(FdQuota(10_000), ANNA)
    async with open_pair() as (ours, theirs), trio.open_nursery() as nursery:
        nursery.start_soon(send_all, theirs, lines)
        data = bytearray()
        for number, (n_bytes, cuts) in enumerate(lines):
            assert await read_line(ours, fds_by_line, data) == b"x" * n_bytes
            line_fds = fds_by_line.take_line(number)
            names = [content_of(fd) for fd in line_fds.fds]
            line_fds.close()
            assert names == names_of(number, n_bytes, cuts)
    assert fds_by_line.cost_bytes == 0


def pieces_of(n_bytes: int, cuts: Cuts) -> list[tuple[bytes, bool]]:
    line = b"x" * n_bytes + b"\n"
    places = dict(sorted((min(place, n_bytes), has) for place, has in cuts))
    edges = [0, *[place for place in places if place], len(line)]
    return [
        (line[start:end], places.get(start, False)) for start, end in pairwise(edges)
    ]


def names_of(number: int, n_bytes: int, cuts: Cuts) -> list[bytes]:
    pieces = pieces_of(n_bytes, cuts)
    return [b"%d.%d" % (number, n) for n, (_, has) in enumerate(pieces) if has]


async def send_all(stream: trio.SocketStream, lines: list[Line]) -> None:
    for number, (n_bytes, cuts) in enumerate(lines):
        for n, (piece, has) in enumerate(pieces_of(n_bytes, cuts)):
            if has:
                with memfds(b"%d.%d" % (number, n)) as fds:
                    await send_with(stream, piece, fds)
            else:
                await stream.send_all(piece)


def test_a_socket_that_reads_plainly_leaves_nothing_open():
    n_before = n_open()
    ours, theirs = socket.socketpair()
    with ours, theirs, memfds(b"one") as fds:
        socket.send_fds(theirs, [b"line\n"], fds)
        assert ours.recv(100) == b"line\n"
        assert n_open() == n_before + 3
    assert n_open() == n_before
