import pytest
import trio
import trio.testing
from msgspec.structs import replace

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.mock import MockSettings
from inferd.config.kinds.registry import KINDS
from inferd.config.kinds.whispercpp import WhisperCppSettings
from inferd.memory.coordinator import MemoryCoordinator
from inferd.memory.plan import (
    InsufficientMemoryError,
    LinearSize,
    MemoryBudget,
    MemoryDemand,
    MemoryPlan,
    MemoryShare,
)
from tests.fakes.memory_coordinator import DEMAND

A, B, MOCK = (
    LlamaCppSettings(name="a"),
    LlamaCppSettings(name="b"),
    MockSettings(name="m"),
)
GROWING = replace(DEMAND, n_ctx=8192, cache=LinearSize(per_token=1))
"""1,010 bytes and 8,192 for each slot."""


def coordinator_of(*backends, n_bytes=100_000, plans=None) -> MemoryCoordinator:
    budget = MemoryBudget(n_bytes=n_bytes, n_slots=4, slots_are_set=False)
    return MemoryCoordinator(
        KINDS.demanding_memory(backends),
        budget,
        (plans if plans is not None else []).append,
    )


def gauges(coordinator: MemoryCoordinator) -> dict[str, float]:
    return {name: read() for name, _, read in coordinator.gauges()}


async def test_a_single_backend_gets_its_share_at_once(autojump_clock):
    plans: list[MemoryPlan] = []
    share = await coordinator_of(A, MOCK, plans=plans).request_share("a", GROWING)
    assert share == MemoryShare(n_slots=4, n_ctx=8192)
    assert [plan.share("a") for plan in plans] == [share]


async def test_whisper_backends_are_waited_for_as_well(autojump_clock, nursery):
    coordinator = coordinator_of(A, WhisperCppSettings(name="w"))
    shares: list[MemoryShare] = []

    async def ask():
        shares.append(await coordinator.request_share("a", GROWING))

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert shares == []
    await coordinator.request_share("w", DEMAND)
    await trio.testing.wait_all_tasks_blocked()
    assert len(shares) == 1


async def test_no_share_is_granted_before_all_demands(autojump_clock, nursery):
    coordinator = coordinator_of(A, B, n_bytes=45_000)
    shares: list[MemoryShare] = []

    async def ask():
        shares.append(await coordinator.request_share("a", GROWING))

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert shares == []
    assert await coordinator.request_share("b", GROWING) == MemoryShare(
        n_slots=2, n_ctx=8192
    )
    await trio.testing.wait_all_tasks_blocked()
    assert shares == [MemoryShare(n_slots=2, n_ctx=8192)]


async def test_a_restarted_worker_gets_the_first_ones_share(autojump_clock):
    coordinator = coordinator_of(A, n_bytes=20_000)
    coordinator.reserve = lambda *_: False
    first = await coordinator.request_share("a", GROWING)
    again = replace(GROWING, own=10**9)  # it is measured, and differs each time
    assert await coordinator.request_share("a", again) == first


async def test_a_demand_that_has_changed_gets_what_there_is_room_for(autojump_clock):
    coordinator = coordinator_of(A, n_bytes=40_000)
    demand = replace(GROWING, pause=300, store=500)
    first = await coordinator.request_share("a", demand)
    assert (first.pause, first.store) == (300, 500)
    reserved: list[tuple[str, int]] = []
    limit = 1010 + 4 * 8192 + 800 + 1000

    def reserve(name: str, n_bytes: int) -> bool:
        reserved.append((name, n_bytes))
        return n_bytes <= limit

    coordinator.reserve = reserve
    larger = replace(demand, weights=demand.weights + 600)  # the caches give way
    share = await coordinator.request_share("a", larger)
    assert share == MemoryShare(n_slots=4, n_ctx=8192, pause=200)
    assert coordinator.bytes_of("a") == limit - 1000
    shorter = replace(larger, n_ctx=4096)
    assert (await coordinator.request_share("a", shorter)).n_ctx == 4096
    assert coordinator.bytes_of("a") < limit - 4 * 4096
    too_large = replace(demand, weights=10**6)
    with pytest.raises(InsufficientMemoryError, match=r"and 1 MiB were planned"):
        await coordinator.request_share("a", too_large)
    assert coordinator.bytes_of("a") < limit - 4 * 4096
    assert [name for name, _ in reserved] == ["a"] * 3


async def test_too_much_is_refused_once(autojump_clock, nursery):
    coordinator = coordinator_of(A, B, n_bytes=10)
    nursery.start_soon(coordinator.request_share, "a", GROWING)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(
        InsufficientMemoryError, match=r"a needs .*; b needs .*the budget is 0 MiB"
    ):
        await coordinator.request_share("b", GROWING)
    nursery.cancel_scope.cancel()


async def test_gauges_are_known_once_there_is_a_plan(autojump_clock):
    coordinator = coordinator_of(A)
    budget = {"memory_budget_bytes": 100_000}
    assert gauges(coordinator) == {**budget, "memory_needed_bytes": 0}
    await coordinator.request_share("a", GROWING)
    assert gauges(coordinator) == {**budget, "memory_needed_bytes": 1010 + 4 * 8192}


@pytest.mark.parametrize("is_planned", [False, True])
async def test_a_demand_that_no_kind_foresees_is_refused(autojump_clock, is_planned):
    coordinator = coordinator_of(A, MOCK)
    if is_planned:
        await coordinator.request_share("a", DEMAND)
    with (
        trio.fail_after(1),
        pytest.raises(InsufficientMemoryError, match="no part in the memory plan"),
    ):
        await coordinator.request_share("m", DEMAND)
    share = await coordinator.request_share("a", DEMAND)
    assert share.n_ctx == DEMAND.n_ctx


async def test_a_backend_that_comes_later_gets_what_those_beside_it_leave():
    memory = MemoryBudget(n_bytes=5000, n_slots=3, slots_are_set=False)
    demand = MemoryDemand(n_ctx=8, is_set=True, has_slots=True, weights=2000, own=0)
    coordinator = MemoryCoordinator(["old"], memory)
    await coordinator.request_share("old", demand)
    coordinator.expect("beside", ["old"])
    share = await coordinator.request_share("beside", demand)
    assert share == await coordinator.request_share("beside", demand)
    assert share.n_slots == 3
    assert coordinator.bytes_of("beside") == coordinator.bytes_of("old") == 2000
    coordinator.expect("third", ["old", "beside"])
    with pytest.raises(InsufficientMemoryError, match="third needs"):
        await coordinator.request_share("third", demand)
    coordinator.forget("beside")
    coordinator.expect("fourth", ["old", "beside"])
    assert await coordinator.request_share("fourth", demand) == share
