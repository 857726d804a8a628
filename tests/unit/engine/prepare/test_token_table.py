import pytest
import trio
import trio.testing

from inferd.engine.channel.demultiplexer import WorkerDiedError
from inferd.engine.channel.validator import ProtocolViolationError
from inferd.engine.prepare.token_table import TokenTableRequest
from inferd.ipc.worker import GetTokenTable, TokenTableReply


def _ignore(message: GetTokenTable) -> None: ...


async def test_a_worker_is_asked_once_for_all_who_want_it(autojump_clock):
    asked: list[GetTokenTable] = []
    told: list[bytes] = []
    vocabulary = TokenTableRequest(asked.append)

    async def want():
        told.append(await vocabulary.get())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(want)
        nursery.start_soon(want)
        await trio.testing.wait_all_tasks_blocked()
        vocabulary.received(TokenTableReply(token_table=b"words"))
    assert await vocabulary.get() == b"words"
    assert (told, len(asked)) == ([b"words"] * 2, 1)


async def test_a_workers_death_wakes_waiting_tasks(autojump_clock):
    vocabulary = TokenTableRequest(_ignore)
    async with trio.open_nursery() as nursery:

        async def want():
            with pytest.raises(WorkerDiedError):
                await vocabulary.get()

        nursery.start_soon(want)
        await trio.testing.wait_all_tasks_blocked()
        vocabulary.worker_gone()


async def test_an_unrequested_or_second_token_table_is_a_violation():
    vocabulary = TokenTableRequest(_ignore)
    with pytest.raises(ProtocolViolationError):
        vocabulary.received(TokenTableReply(token_table=b""))
    vocabulary.worker_gone()
    with pytest.raises(WorkerDiedError):
        await vocabulary.get()
    vocabulary.received(TokenTableReply(token_table=b""))
    with pytest.raises(ProtocolViolationError):
        vocabulary.received(TokenTableReply(token_table=b""))
