import threading

import pytest
from hypothesis import given, settings, strategies as st

from inferd.cli.batch.ordered import READ_AHEAD, in_order


def ignore() -> None:
    """Interrupt nothing."""


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(), max_size=20), st.integers(1, 4))
def test_results_come_in_the_order_of_the_items(items, n_jobs):
    assert [*in_order(lambda each: each + 1, items, n_jobs, ignore)] == [
        each + 1 for each in items
    ]


def test_several_run_at_once_and_few_are_read_ahead():
    both = threading.Barrier(2)
    taken: list[int] = []

    def items():
        for number in range(100):
            taken.append(number)
            yield number

    results = in_order(lambda each: (both.wait(60), each)[1], items(), 2, ignore)
    assert next(results) == 0
    assert len(taken) == READ_AHEAD * 2
    assert next(results) == 1
    assert [*results] == [*range(2, 100)]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_what_comes_before_an_error_is_yielded(n_jobs):
    def items():
        yield from range(3)
        raise ValueError("of the items")

    results = in_order(str, items(), n_jobs, ignore)
    assert [next(results) for _ in range(3)] == ["0", "1", "2"]
    with pytest.raises(ValueError, match="of the items"):
        next(results)


def test_an_error_ends_all_and_interrupts_what_runs():
    ended = threading.Event()

    def work(number: int) -> int:
        if number == 1:
            raise ValueError("of an item")
        if number > 1:
            assert ended.wait(60)
        return number

    results = in_order(work, range(100), 2, ended.set)
    assert next(results) == 0
    with pytest.raises(ValueError, match="of an item"):
        next(results)
    assert ended.is_set()
