import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from inferd.memory.ladder import Rung, choose_rungs
from inferd.memory.plan import (
    MIB,
    InsufficientMemoryError,
    LinearSize,
    MemoryBudget,
    MemoryDemand,
    plan_memory,
)
from tests.cases import each_case
from tests.fakes.memory_coordinator import DEMAND


def demand(n_mib: int) -> MemoryDemand:
    return replace(
        DEMAND, weights=n_mib * MIB, cache=LinearSize(per_slot=10 * MIB), own=0
    )


def budget(n_mib: int, n_slots: int = 2) -> MemoryBudget:
    return MemoryBudget(n_bytes=n_mib * MIB, n_slots=n_slots, slots_are_set=False)


LADDER = [
    Rung("large", demand(400)),
    Rung("middle", demand(200)),
    Rung("s", demand(50)),
]


@each_case(
    ("n_mib", "model"),
    [(420, "large"), (410, "large"), (409, "middle"), (210, "middle"), (60, "s")],
)
def test_the_first_model_that_fits_is_chosen(n_mib, model):
    choice = choose_rungs({"chat": LADDER}, {}, budget(n_mib))["chat"]
    assert (choice.model, choice.n_rungs) == (model, 3)
    assert LADDER[choice.place].model == model


def test_the_reason_has_the_numbers():
    others = {"embed": demand(10)}
    choice = choose_rungs({"chat": LADDER}, others, budget(300))["chat"]
    assert str(choice) == (
        "middle, 2 of 3 in its ladder: it needs 220 MiB with 2 slots of 512 tokens, "
        "the other backends 30 MiB; the budget is 300 MiB; large needs 410 MiB at least"
    )
    alone = choose_rungs({"chat": LADDER}, {}, budget(410))["chat"]
    assert alone.reason == (
        "it needs 410 MiB with 1 slot of 512 tokens; the budget is 410 MiB"
    )


def test_where_none_fits_the_numbers_of_the_last_are_told():
    with pytest.raises(InsufficientMemoryError) as caught:
        choose_rungs({"chat": LADDER}, {}, budget(59))
    text = str(caught.value)
    assert text.startswith("backend chat: no model of its ladder fits; s: not enough")
    assert "the budget is 59 MiB" in text


def test_ladders_choose_in_their_order_and_leave_room_for_the_smallest_of_the_next():
    ladders = {"a": LADDER, "b": LADDER}
    chosen = choose_rungs(ladders, {}, budget(420 + 70))
    assert [chosen[name].model for name in "ab"] == ["large", "s"]
    chosen = choose_rungs(ladders, {}, budget(419 + 50))
    assert [chosen[name].model for name in "ab"] == ["middle", "middle"]


SIZES = st.lists(st.integers(0, 2000), min_size=1, max_size=5)


@pytest.mark.slow
@given(SIZES, SIZES, st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 4))
def test_a_choice_fits_and_more_memory_gives_no_later_one(
    sizes, others, n_mib, more, n_slots
):
    rungs = [Rung(str(at), demand(size)) for at, size in enumerate(sizes)]
    fixed = {f"other{at}": demand(size) for at, size in enumerate(others)}

    def place(n_mib: int) -> int | None:
        try:
            chosen = choose_rungs({"m": rungs}, fixed, budget(n_mib, n_slots))
        except InsufficientMemoryError:
            return None
        assert chosen == choose_rungs({"m": rungs}, fixed, budget(n_mib, n_slots))
        return chosen["m"].place

    first = place(n_mib)
    for at, rung in enumerate(rungs if first is None else rungs[: first + 1]):
        fits = at == first
        try:
            plan = plan_memory({**fixed, "m": rung.demand}, budget(n_mib, n_slots))
        except InsufficientMemoryError:
            assert not fits
        else:
            assert fits
            assert plan.total <= n_mib * MIB
    if first is not None:
        later = place(n_mib + more)
        assert later is not None
        assert later <= first
