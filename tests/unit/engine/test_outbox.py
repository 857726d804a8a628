from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from inferd.engine.outbox import Outbox, OutboxFullError
from inferd.ipc import Prepare, Run, ToWorker
from inferd.job import EmbedJob
from inferd.pipe import MessageSplitter, decode_to_worker
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


async def test_what_is_sent_to_a_dead_worker_is_lost_without_a_word():
    async with draining() as (outbox, theirs):
        outbox.post(Prepare(ticket=1, job=LARGE))
        await theirs.aclose()
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            outbox.post(Run(ticket=1))
        assert not outbox._unsent
