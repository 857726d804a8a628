import pytest
import trio
import trio.testing

from inferd.engine.answers import WorkerDiedError
from inferd.engine.conduct import LieError
from inferd.engine.vocabulary import Vocabulary
from inferd.ipc import Spell, Spelt


def _ignore(message: Spell) -> None: ...


async def test_a_worker_is_asked_once_for_all_who_want_it(autojump_clock):
    asked: list[Spell] = []
    told: list[bytes] = []
    vocabulary = Vocabulary(asked.append)

    async def want():
        told.append(await vocabulary.get())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(want)
        nursery.start_soon(want)
        await trio.testing.wait_all_tasks_blocked()
        vocabulary.told(Spelt(words=b"words"))
    assert await vocabulary.get() == b"words"
    assert (told, len(asked)) == ([b"words"] * 2, 1)


async def test_whoever_waits_for_a_worker_that_dies_is_told(autojump_clock):
    vocabulary = Vocabulary(_ignore)
    async with trio.open_nursery() as nursery:

        async def want():
            with pytest.raises(WorkerDiedError):
                await vocabulary.get()

        nursery.start_soon(want)
        await trio.testing.wait_all_tasks_blocked()
        vocabulary.give_up()


async def test_what_nobody_asked_and_what_comes_twice_is_a_fault_of_the_worker():
    vocabulary = Vocabulary(_ignore)
    with pytest.raises(LieError):
        vocabulary.told(Spelt(words=b""))
    vocabulary.give_up()
    with pytest.raises(WorkerDiedError):
        await vocabulary.get()
    vocabulary.told(Spelt(words=b""))
    with pytest.raises(LieError):
        vocabulary.told(Spelt(words=b""))
