import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from inferd.limits.engine import MIN_FITTED_CONTEXT_TOKENS as FLOOR
from inferd.memory.plan import (
    MIB,
    InsufficientMemoryError,
    LinearSize,
    MemoryBudget,
    MemoryDemand,
    MemoryShare,
    plan_memory,
)
from tests.cases import each_case

CHAT = MemoryDemand(
    n_ctx=8192,
    is_set=False,
    has_slots=True,
    weights=92 * MIB,
    own=80 * MIB,
    cache=LinearSize(per_token=23_040),
    compute=LinearSize(fixed=20 * MIB, per_slot=MIB),
)
"""The embedded chat model, about: 180 MiB for a slot of 8,192 tokens."""

small = st.integers(0, 10**6)
lines = st.builds(LinearSize, fixed=small, per_slot=small, per_token=small)
demands = st.builds(
    MemoryDemand,
    n_ctx=st.integers(8, 40_000),
    is_set=st.booleans(),
    has_slots=st.booleans(),
    weights=small,
    own=small,
    cache=lines,
    compute=lines,
    pause=small,
    store=small,
)
fleets = st.dictionaries(st.sampled_from("abc"), demands, min_size=1)
budgets = st.builds(
    MemoryBudget,
    n_bytes=st.integers(0, 40).flatmap(lambda bits: st.integers(0, 2**bits)),
    n_slots=st.integers(1, 16),
    slots_are_set=st.booleans(),
)


def budget(
    n_mib: int, *, n_slots: int = 4, slots_are_set: bool = False
) -> MemoryBudget:
    return MemoryBudget(
        n_bytes=n_mib * MIB, n_slots=n_slots, slots_are_set=slots_are_set
    )


def fitted(*args, **kwargs):
    try:
        return plan_memory(*args, **kwargs)
    except InsufficientMemoryError:
        return None


def refusal(demand: MemoryDemand, budget: MemoryBudget) -> str:
    with pytest.raises(InsufficientMemoryError) as caught:
        plan_memory({"chat": demand}, budget)
    return str(caught.value)


# --- laws -------------------------------------------------------------------------------


@pytest.mark.slow
@given(fleet=fleets, budget=budgets)
def test_the_plan_is_within_the_budget(fleet, budget):
    if plan := fitted(fleet, budget):
        assert plan.total <= budget.n_bytes
        assert plan.total == sum(
            fleet[name].need(plan.n_slots, need.n_ctx).total + need.pause + need.store
            for name, need in plan.needs.items()
        )


@pytest.mark.slow
@given(fleet=fleets, budget=budgets)
def test_configured_values_stay(fleet, budget):
    if plan := fitted(fleet, budget):
        assert not budget.slots_are_set or plan.n_slots == budget.n_slots
        for name, demand in fleet.items():
            n_ctx = plan.share(name).n_ctx
            lowest = demand.n_ctx if demand.is_set else min(demand.n_ctx, FLOOR)
            assert lowest <= n_ctx <= demand.n_ctx
        assert 1 <= plan.n_slots <= budget.n_slots


@pytest.mark.slow
@given(fleet=fleets, budget=budgets, more=st.integers(0, 2**44))
def test_a_larger_budget_gives_no_less(fleet, budget, more):
    if plan := fitted(fleet, budget):
        larger = plan_memory(fleet, replace(budget, n_bytes=budget.n_bytes + more))
        before, after = (
            (each.n_slots, [need.n_ctx for need in each.needs.values()])
            for each in (plan, larger)
        )
        assert before <= after


@pytest.mark.slow
@given(fleet=fleets, budget=budgets)
def test_nothing_shrinks_without_need(fleet, budget):
    plan = fitted(fleet, budget)
    whole = sum(each.need(budget.n_slots, each.n_ctx).total for each in fleet.values())
    assert (plan is not None and not plan.has_shrunk) == (whole <= budget.n_bytes)


@pytest.mark.slow
@given(fleet=fleets, budget=budgets)
def test_contexts_shrink_only_once_there_are_no_slots_to_save(fleet, budget):
    if plan := fitted(fleet, budget):
        has_shorter = any(
            need.n_ctx < fleet[name].n_ctx for name, need in plan.needs.items()
        )
        assert not has_shorter or plan.n_slots == budget.fewest_slots


# --- cases ------------------------------------------------------------------------------


def test_with_enough_memory_all_is_as_demanded():
    plan = plan_memory({"chat": CHAT}, budget(1000))
    assert (plan.share("chat"), plan.has_shrunk) == (
        MemoryShare(n_slots=4, n_ctx=8192),
        False,
    )


def test_slots_go_first():
    plan = plan_memory({"chat": CHAT}, budget(600))
    assert (plan.share("chat"), plan.has_shrunk) == (
        MemoryShare(n_slots=2, n_ctx=8192),
        True,
    )


def test_the_context_goes_next():
    plan = plan_memory({"chat": CHAT}, budget(300))
    assert plan.share("chat") == MemoryShare(n_slots=1, n_ctx=4864)


def test_slots_that_were_set_stay_and_the_context_goes():
    plan = plan_memory({"chat": CHAT}, budget(600, slots_are_set=True))
    assert plan.share("chat") == MemoryShare(n_slots=4, n_ctx=4352)


def test_an_encoder_has_one_context_for_all_slots():
    encoder = replace(CHAT, has_slots=False)
    need = plan_memory({"embed": encoder}, budget(1000)).needs["embed"]
    assert (need.n_slots, need.cache) == (1, 8192 * 23_040)


def test_a_context_takes_whole_blocks():
    assert CHAT.need(1, 257).cache == 512 * 23_040


def test_a_store_counts():
    plain, storing = (
        plan_memory({"chat": replace(CHAT, store=n_bytes)}, budget(1000)).total
        for n_bytes in (0, 64 * MIB)
    )
    assert storing - plain == 64 * MIB


def test_kept_prefixes_reduce_nothing_else():
    plain = plan_memory({"chat": CHAT}, budget(1000))
    plan = plan_memory({"chat": replace(CHAT, store=10**12)}, budget(1000))
    assert plan.share("chat") == replace(
        plain.share("chat"), store=1000 * MIB - plain.total
    )


# --- refusals ---------------------------------------------------------------------------


def test_a_refusal_has_the_least_that_is_needed_and_what_there_is():
    assert refusal(CHAT, budget(200)) == (
        "not enough memory: chat needs 238 MiB (92 MiB for weights, 45 MiB for 1 slot of "
        "2048 tokens, 21 MiB to compute, 80 MiB for the worker); the budget is 200 MiB; "
        "no fewer slots and no shorter context would fit"
    )


@each_case(
    ("is_set", "slots_are_set", "n_mib", "advice"),
    [
        (True, False, 300, "n_ctx = 4864 for chat would fit"),
        (True, True, 600, "max_active = 2 would fit"),
        (True, True, 300, "max_active = 1 with n_ctx = 4864 for chat would fit"),
        (False, True, 300, "max_active = 1 would fit"),
    ],
)
def test_a_refusal_tells_what_would_fit(is_set, slots_are_set, n_mib, advice):
    demand = replace(CHAT, is_set=is_set)
    text = refusal(demand, budget(n_mib, slots_are_set=slots_are_set))
    assert text.endswith(f"the budget is {n_mib} MiB; {advice}")


def test_several_models_are_told_one_by_one_and_together():
    with pytest.raises(InsufficientMemoryError) as caught:
        plan_memory(
            {"chat": CHAT, "embed": replace(CHAT, has_slots=False)}, budget(200)
        )
    assert "; embed needs 238 MiB (" in str(caught.value)
    assert "; together 476 MiB; the budget is 200 MiB; " in str(caught.value)


def test_paused_jobs_have_what_is_left_before_anything_else_is_kept():
    chat = replace(CHAT, pause=100 * MIB, store=100 * MIB)
    needed = CHAT.need(4, 8192).total
    for left, pause, store in ((0, 0, 0), (60, 60, 0), (150, 100, 50), (900, 100, 100)):
        plan = plan_memory({"chat": chat}, budget(-(-needed // MIB) + left))
        kept = plan.share("chat")
        assert kept.pause >= pause * MIB
        assert abs(kept.pause - pause * MIB) + abs(kept.store - store * MIB) <= 2 * MIB


def test_no_more_is_kept_of_paused_jobs_than_all_contexts_take():
    plan = plan_memory({"chat": replace(CHAT, pause=2**40)}, budget(100_000))
    need = plan.needs["chat"]
    assert plan.share("chat").pause == need.cache + need.compute
    assert "MiB for paused jobs" in str(need)


@given(fleet=fleets, memory=budgets, on_demand=st.sets(st.sampled_from("abc")))
def test_each_model_on_demand_fits_beside_those_that_stay(fleet, memory, on_demand):
    on_demand &= fleet.keys()
    plan = fitted(fleet, memory, on_demand)
    if plan is None:
        kept = {name: each for name, each in fleet.items() if name not in on_demand}
        assert fitted(kept, memory) is None
        return
    assert plan.needs.keys() | plan.too_large.keys() == fleet.keys()
    assert plan.total <= memory.n_bytes
    kept = sum(need.total for name, need in plan.needs.items() if name not in on_demand)
    for name in on_demand & plan.needs.keys():
        assert kept + plan.need(name).total <= memory.n_bytes
    for name in plan.too_large:
        assert kept + plan.need(name).total > memory.n_bytes or name in on_demand
        assert plan.share(name).n_slots == plan.n_slots


def test_models_on_demand_that_fit_together_are_planned_as_if_they_stayed():
    fleet = {"a": CHAT, "b": CHAT}
    assert plan_memory(fleet, budget(5000), ["b"]) == plan_memory(fleet, budget(5000))


def test_models_on_demand_get_full_contexts_although_they_do_not_fit_together():
    fleet = {"a": CHAT, "b": CHAT}
    plan = plan_memory(fleet, budget(1000, n_slots=2), ["a", "b"])
    assert [plan.share(name).n_ctx for name in "ab"] == [8192, 8192]
    assert not plan.has_shrunk


def test_one_that_is_too_large_changes_nothing_for_the_others():
    fleet = {"a": CHAT, "b": replace(CHAT, weights=9000 * MIB)}
    plan = plan_memory(fleet, budget(1000, n_slots=2), ["b"])
    assert plan.needs == plan_memory({"a": CHAT}, budget(1000, n_slots=2)).needs
    assert plan.need("b").total > 9000 * MIB
