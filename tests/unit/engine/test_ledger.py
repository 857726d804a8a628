import pytest
import trio
import trio.testing
from msgspec.structs import replace

from inferd.config import LlamaCppSettings, MockSettings, WhisperCppSettings
from inferd.engine.ledger import Ledger
from inferd.fit import Budget, Line, Plan, Share, UnfitError
from tests.fakes.ledger import DEMAND

A, B, MOCK = (
    LlamaCppSettings(name="a"),
    LlamaCppSettings(name="b"),
    MockSettings(name="m"),
)
GROWING = replace(DEMAND, n_ctx=8192, cache=Line(per_token=1))
"""1,010 bytes and 8,192 for each slot."""


def ledger(*backends, n_bytes=100_000, plans=None) -> Ledger:
    budget = Budget(n_bytes=n_bytes, n_slots=4, slots_are_set=False)
    return Ledger(backends, budget, (plans if plans is not None else []).append)


def figures(ledger: Ledger) -> dict[str, float]:
    return {name: read() for name, _, read in ledger.figures()}


async def test_a_single_backend_hears_at_once(autojump_clock):
    plans: list[Plan] = []
    share = await ledger(A, MOCK, plans=plans).allot("a", GROWING)
    assert share == Share(n_slots=4, n_ctx=8192)
    assert [plan.share("a") for plan in plans] == [share]


async def test_what_writes_speech_down_is_waited_for_as_well(autojump_clock, nursery):
    house = ledger(A, WhisperCppSettings(name="w"))
    shares: list[Share] = []

    async def ask():
        shares.append(await house.allot("a", GROWING))

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert shares == []
    await house.allot("w", DEMAND)
    await trio.testing.wait_all_tasks_blocked()
    assert len(shares) == 1


async def test_nobody_hears_before_all_have_demanded(autojump_clock, nursery):
    house = ledger(A, B, n_bytes=45_000)
    shares: list[Share] = []

    async def ask():
        shares.append(await house.allot("a", GROWING))

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert shares == []
    assert await house.allot("b", GROWING) == Share(n_slots=2, n_ctx=8192)
    await trio.testing.wait_all_tasks_blocked()
    assert shares == [Share(n_slots=2, n_ctx=8192)]


async def test_a_worker_that_comes_back_gets_what_the_first_got(autojump_clock):
    house = ledger(A, n_bytes=20_000)
    first = await house.allot("a", GROWING)
    assert await house.allot("a", replace(GROWING, weights=10**9)) == first


async def test_too_much_is_refused_once(autojump_clock, nursery):
    house = ledger(A, B, n_bytes=10)
    nursery.start_soon(house.allot, "a", GROWING)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(UnfitError, match=r"a needs .*; b needs .*the budget is 0 MiB"):
        await house.allot("b", GROWING)
    nursery.cancel_scope.cancel()


async def test_figures_are_known_once_all_is_decided(autojump_clock):
    house = ledger(A)
    budget = {"memory_budget_bytes": 100_000}
    assert figures(house) == {**budget, "memory_needed_bytes": 0}
    await house.allot("a", GROWING)
    assert figures(house) == {**budget, "memory_needed_bytes": 1010 + 4 * 8192}
