import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from inferd.backend.job import EmbedJob
from inferd.engine.channel.transport import MessageWriter, SendQueueFullError
from inferd.ipc.encoding import MessageSplitter, encode
from inferd.ipc.worker import Append, Prepare, Run, ToWorker
from inferd.limits.connections import WRITE_BYTES
from tests.fakes.fds import contents, memfds, n_open
from tests.fakes.media import job_with
from tests.fakes.starting import decode_load_too
from tests.fakes.streams import fill_pipe, open_pair
from tests.fakes.writes import os_writes

LARGE = EmbedJob(texts=["x" * 3_000_000], dimensions=None, task=None)
"""More than a pipe holds."""


async def read(stream: trio.SocketStream, n_messages: int) -> list[ToWorker]:
    """Read so many messages."""
    splitter = MessageSplitter()
    messages: list[ToWorker] = []
    while len(messages) < n_messages:
        splitter.feed(await stream.receive_some())
        while (payload := splitter.next_payload()) is not None:
            messages.append(decode_load_too(payload))
    return messages


@asynccontextmanager
async def draining() -> AsyncIterator[tuple[MessageWriter, trio.SocketStream]]:
    """Open an writer and the worker's end of it."""
    async with open_pair() as (ours, theirs), trio.open_nursery() as nursery:
        writer = MessageWriter(ours)
        nursery.start_soon(writer.drain)
        yield writer, theirs
        nursery.cancel_scope.cancel()


async def test_a_message_is_sent_without_draining():
    async with open_pair() as (ours, theirs):
        MessageWriter(ours).send(Run(ticket=1))
        assert await read(theirs, 1) == [Run(ticket=1)]


async def test_messages_larger_than_the_socket_buffer_arrive_in_order():
    sent: list[ToWorker] = [
        Prepare(ticket=1, job=LARGE),
        Run(ticket=1),
        Prepare(ticket=2, job=LARGE),
    ]
    async with draining() as (writer, theirs):
        for message in sent:
            writer.send(message)
        assert await read(theirs, 3) == sent


async def test_no_step_offers_more_than_one_write_to_the_worker(monkeypatch, nursery):
    message = Prepare(ticket=1, job=LARGE)
    async with draining() as (writer, theirs):
        with os_writes(monkeypatch) as steps:
            writer.send(message)
            assert await read(theirs, 1) == [message]
    assert max(steps.n_bytes.values()) == WRITE_BYTES
    assert steps.n_bytes.total() >= len(encode(message))


async def test_flush_waits_until_the_queue_is_sent(nursery):
    async with open_pair() as (ours, theirs):
        writer = MessageWriter(ours)
        await writer.flush()
        message = Prepare(ticket=1, job=LARGE)
        writer.send(message)
        nursery.start_soon(writer.flush)
        assert await read(theirs, 1) == [message]
        assert not writer._unsent


async def test_a_message_after_a_pause_is_sent_as_well():
    async with draining() as (writer, theirs):
        for message in (Prepare(ticket=1, job=LARGE), Prepare(ticket=2, job=LARGE)):
            writer.send(message)
            assert await read(theirs, 1) == [message]


async def test_a_full_queue_takes_no_more(monkeypatch):
    monkeypatch.setattr("inferd.engine.channel.transport.IPC_SEND_QUEUE_MESSAGES", 2)
    async with open_pair() as (ours, _):
        writer = MessageWriter(ours)
        fill_pipe(ours)
        writer.send(Run(ticket=1))
        writer.send(Run(ticket=2))
        with pytest.raises(SendQueueFullError):
            writer.send(Run(ticket=3))


async def test_only_the_last_append_of_each_job_stays_queued(monkeypatch):
    monkeypatch.setattr("inferd.engine.channel.transport.IPC_SEND_QUEUE_MESSAGES", 4)
    async with draining() as (writer, theirs):
        writer.send(Prepare(ticket=1, job=LARGE))
        writer.send(Run(ticket=1))
        for n in range(1, 100):
            writer.send(Append(ticket=1, n_bytes=4 * n))
            writer.send(Append(ticket=2, n_bytes=8 * n, is_last=n == 99))
        assert (await read(theirs, 4))[1:] == [
            Run(ticket=1),
            Append(ticket=1, n_bytes=396),
            Append(ticket=2, n_bytes=792, is_last=True),
        ]


async def test_appends_queued_behind_a_message_are_merged():
    async with open_pair() as (ours, _):
        writer = MessageWriter(ours)
        writer.send(Prepare(ticket=1, job=LARGE))
        writer.send(Append(ticket=1, n_bytes=4))
        writer.send(Append(ticket=1, n_bytes=8))
        assert [each.appended_to for each in writer._unsent] == [None, 1]


async def test_an_append_that_is_half_sent_is_not_replaced():
    async with open_pair() as (ours, _):
        writer = MessageWriter(ours)
        fill_pipe(ours)
        writer.send(Append(ticket=1, n_bytes=4))
        writer.send(Append(ticket=1, n_bytes=8))
        assert [each.appended_to for each in writer._unsent] == [1, 1]


async def test_messages_to_a_dead_worker_are_discarded_silently():
    async with draining() as (writer, theirs):
        writer.send(Prepare(ticket=1, job=LARGE))
        await theirs.aclose()
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            writer.send(Run(ticket=1))
        assert not writer._unsent


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
        writer = MessageWriter(ours)
        with memfds(b"one", b"two") as fds:
            writer.send(Run(ticket=1))
            writer.send(with_media(2, 2), fds)
        assert received(theirs) == [b"one", b"two"]
        assert n_open() == before


async def test_queued_descriptors_are_copies(nursery):
    async with open_pair() as (ours, theirs):
        before = n_open()
        writer = MessageWriter(ours)
        writer.send(Prepare(ticket=1, job=LARGE))
        with memfds(b"one") as fds:
            writer.send(with_media(2, 1), fds)
        nursery.start_soon(writer.flush)
        n_left = len(encode(Prepare(ticket=1, job=LARGE)))
        while n_left:
            n_left -= len(await theirs.receive_some(min(n_left, 65536)))
        await trio.testing.wait_all_tasks_blocked()
        assert received(theirs) == [b"one"]
        assert n_open() == before


@pytest.mark.parametrize("ends_by", ["close", "death"])
async def test_descriptors_that_are_not_sent_any_more_are_closed(ends_by):
    async with open_pair() as (ours, theirs):
        writer, before = MessageWriter(ours), n_open()
        writer.send(Prepare(ticket=1, job=LARGE))
        with memfds(b"one") as fds:
            writer.send(with_media(2, 1), fds)
            assert n_open() == before + 2
            if ends_by == "close":
                writer.close()
            else:
                await theirs.aclose()
                await writer.flush()
                before -= 1
            writer.send(with_media(3, 1), fds)
        assert n_open() == before


async def test_without_descriptors_nothing_is_sent(monkeypatch):
    async with open_pair() as (ours, _):
        writer, before, dup = MessageWriter(ours), n_open(), os.dup

        def dup_once(fd: int) -> int:
            monkeypatch.setattr(os, "dup", refuse)
            return dup(fd)

        def refuse(_: int) -> int:
            raise OSError(errno.EMFILE, "too many open files")

        monkeypatch.setattr(os, "dup", dup_once)
        with memfds(b"one", b"two") as fds, pytest.raises(OSError, match="too many"):
            writer.send(with_media(1, 2), fds)
        assert not writer._unsent
        assert n_open() == before


async def test_descriptors_are_sent_later_if_too_many_are_in_flight(
    monkeypatch, autojump_clock
):
    send_fds = socket.send_fds

    def refuse(*_: object) -> int:
        raise OSError(errno.ETOOMANYREFS, "too many references")

    async with draining() as (writer, theirs):
        monkeypatch.setattr(socket, "send_fds", refuse)
        with memfds(b"one") as fds:
            writer.send(with_media(1, 1), fds)
        await trio.sleep(1)
        monkeypatch.setattr(socket, "send_fds", send_fds)
        await trio.sleep(1)
        assert received(theirs) == [b"one"]
