import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from inferd.engine.outbox import Outbox, OutboxFullError
from inferd.ipc import Append, Prepare, Run, ToWorker
from inferd.job import EmbedJob
from inferd.pipe import MessageSplitter, decode_to_worker, encode
from tests.fakes.fds import contents, memfds, n_open
from tests.fakes.media import job_with
from tests.fakes.streams import fill_pipe, open_pair

LARGE = EmbedJob(texts=["x" * 3_000_000], dimensions=None, task=None)
"""More than a pipe holds."""


async def read(stream: trio.SocketStream, n_messages: int) -> list[ToWorker]:
    """Read so many messages."""
    splitter = MessageSplitter()
    messages: list[ToWorker] = []
    while len(messages) < n_messages:
        splitter.feed(await stream.receive_some())
        while (payload := splitter.next_payload()) is not None:
            messages.append(decode_to_worker(payload))
    return messages


@asynccontextmanager
async def draining() -> AsyncIterator[tuple[Outbox, trio.SocketStream]]:
    """Open an outbox and the worker's end of it."""
    async with open_pair() as (ours, theirs), trio.open_nursery() as nursery:
        outbox = Outbox(ours)
        nursery.start_soon(outbox.drain)
        yield outbox, theirs
        nursery.cancel_scope.cancel()


async def test_a_message_is_sent_before_anybody_waits():
    async with open_pair() as (ours, theirs):
        Outbox(ours).post(Run(ticket=1))
        assert await read(theirs, 1) == [Run(ticket=1)]


async def test_messages_larger_than_the_pipe_arrive_whole_and_in_order():
    sent: list[ToWorker] = [
        Prepare(ticket=1, job=LARGE),
        Run(ticket=1),
        Prepare(ticket=2, job=LARGE),
    ]
    async with draining() as (outbox, theirs):
        for message in sent:
            outbox.post(message)
        assert await read(theirs, 3) == sent


async def test_what_waits_can_be_waited_for(nursery):
    async with open_pair() as (ours, theirs):
        outbox = Outbox(ours)
        await outbox.flush()
        message = Prepare(ticket=1, job=LARGE)
        outbox.post(message)
        nursery.start_soon(outbox.flush)
        assert await read(theirs, 1) == [message]
        assert not outbox._unsent


async def test_a_message_after_a_pause_is_sent_as_well():
    async with draining() as (outbox, theirs):
        for message in (Prepare(ticket=1, job=LARGE), Prepare(ticket=2, job=LARGE)):
            outbox.post(message)
            assert await read(theirs, 1) == [message]


async def test_a_full_outbox_takes_no_more(monkeypatch):
    monkeypatch.setattr("inferd.engine.outbox.IPC_OUTBOX_MESSAGES", 2)
    async with open_pair() as (ours, _):
        outbox = Outbox(ours)
        fill_pipe(ours)
        outbox.post(Run(ticket=1))
        outbox.post(Run(ticket=2))
        with pytest.raises(OutboxFullError):
            outbox.post(Run(ticket=3))


async def test_of_sound_that_waits_to_be_told_the_last_of_each_job_is_left(monkeypatch):
    monkeypatch.setattr("inferd.engine.outbox.IPC_OUTBOX_MESSAGES", 4)
    async with draining() as (outbox, theirs):
        outbox.post(Prepare(ticket=1, job=LARGE))
        outbox.post(Run(ticket=1))
        for n in range(1, 100):
            outbox.post(Append(ticket=1, n_bytes=4 * n))
            outbox.post(Append(ticket=2, n_bytes=8 * n, is_last=n == 99))
        assert (await read(theirs, 4))[1:] == [
            Run(ticket=1),
            Append(ticket=1, n_bytes=396),
            Append(ticket=2, n_bytes=792, is_last=True),
        ]


async def test_sound_that_waits_right_behind_a_message_is_told_once():
    async with open_pair() as (ours, _):
        outbox = Outbox(ours)
        outbox.post(Prepare(ticket=1, job=LARGE))
        outbox.post(Append(ticket=1, n_bytes=4))
        outbox.post(Append(ticket=1, n_bytes=8))
        assert [each.appended_to for each in outbox._unsent] == [None, 1]


async def test_sound_is_told_behind_a_message_that_is_half_sent():
    async with open_pair() as (ours, _):
        outbox = Outbox(ours)
        fill_pipe(ours)
        outbox.post(Append(ticket=1, n_bytes=4))
        outbox.post(Append(ticket=1, n_bytes=8))
        assert [each.appended_to for each in outbox._unsent] == [1, 1]


async def test_what_is_sent_to_a_dead_worker_is_lost_without_a_word():
    async with draining() as (outbox, theirs):
        outbox.post(Prepare(ticket=1, job=LARGE))
        await theirs.aclose()
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            outbox.post(Run(ticket=1))
        assert not outbox._unsent


# --- descriptors ------------------------------------------------------------------------


def with_media(ticket: int, n_media: int) -> Prepare:
    return Prepare(ticket=ticket, job=job_with(n_media))


def received(stream: trio.SocketStream) -> list[bytes]:
    """Read what is there, and what is in the files that came with its first byte."""
    with socket.socket(fileno=os.dup(stream.socket.fileno())) as theirs:
        _, fds, _, _ = socket.recv_fds(theirs, 100_000, 10)
    return contents(fds)


async def test_descriptors_go_with_the_first_byte_of_their_message():
    async with open_pair() as (ours, theirs):
        before = n_open()
        outbox = Outbox(ours)
        with memfds(b"one", b"two") as fds:
            outbox.post(Run(ticket=1))
            outbox.post(with_media(2, 2), fds)
        assert received(theirs) == [b"one", b"two"]
        assert n_open() == before


async def test_descriptors_that_wait_are_not_the_callers_any_more(nursery):
    async with open_pair() as (ours, theirs):
        before = n_open()
        outbox = Outbox(ours)
        outbox.post(Prepare(ticket=1, job=LARGE))
        with memfds(b"one") as fds:
            outbox.post(with_media(2, 1), fds)
        nursery.start_soon(outbox.flush)
        n_left = len(encode(Prepare(ticket=1, job=LARGE)))
        while n_left:
            n_left -= len(await theirs.receive_some(min(n_left, 65536)))
        await trio.testing.wait_all_tasks_blocked()
        assert received(theirs) == [b"one"]
        assert n_open() == before


@pytest.mark.parametrize("ends_by", ["close", "death"])
async def test_descriptors_that_are_not_sent_any_more_are_closed(ends_by):
    async with open_pair() as (ours, theirs):
        outbox, before = Outbox(ours), n_open()
        outbox.post(Prepare(ticket=1, job=LARGE))
        with memfds(b"one") as fds:
            outbox.post(with_media(2, 1), fds)
            assert n_open() == before + 2
            if ends_by == "close":
                outbox.close()
            else:
                await theirs.aclose()
                await outbox.flush()
                before -= 1
            outbox.post(with_media(3, 1), fds)
        assert n_open() == before


async def test_where_no_descriptor_is_to_be_had_nothing_is_sent(monkeypatch):
    async with open_pair() as (ours, _):
        outbox, before, dup = Outbox(ours), n_open(), os.dup

        def dup_once(fd: int) -> int:
            monkeypatch.setattr(os, "dup", refuse)
            return dup(fd)

        def refuse(_: int) -> int:
            raise OSError(errno.EMFILE, "too many open files")

        monkeypatch.setattr(os, "dup", dup_once)
        with memfds(b"one", b"two") as fds, pytest.raises(OSError, match="too many"):
            outbox.post(with_media(1, 2), fds)
        assert not outbox._unsent
        assert n_open() == before


async def test_where_too_many_descriptors_are_on_their_way_they_go_later(
    monkeypatch, autojump_clock
):
    send_fds = socket.send_fds

    def refuse(*_: object) -> int:
        raise OSError(errno.ETOOMANYREFS, "too many references")

    async with draining() as (outbox, theirs):
        monkeypatch.setattr(socket, "send_fds", refuse)
        with memfds(b"one") as fds:
            outbox.post(with_media(1, 1), fds)
        await trio.sleep(1)
        monkeypatch.setattr(socket, "send_fds", send_fds)
        await trio.sleep(1)
        assert received(theirs) == [b"one"]
