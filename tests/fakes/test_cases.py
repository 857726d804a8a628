import inspect

import pytest
import trio

from tests.cases import each_case


def even(number: int) -> None:
    assert number % 2 == 0


def test_all_cases_run_and_those_that_fail_are_named():
    seen: list[int] = []

    @each_case("number, word", [(1, "one"), (2, "two"), pytest.param(3, "", id="odd")])
    def item(number, word, log):
        log.append(number)
        even(number)

    with pytest.raises(ExceptionGroup) as raised:
        item(log=seen)
    assert seen == [1, 2, 3]
    notes = [error.__notes__ for error in raised.value.exceptions]
    assert notes == [["case: 1-'one'"], ["case: odd"]]
    assert [*inspect.signature(item).parameters] == ["log"]


def test_a_single_failure_is_raised_as_it_is():
    with pytest.raises(AssertionError) as raised:
        each_case("number", [2, 3], ids=["two", "three"])(even)()
    assert raised.value.__notes__ == ["case: three"]


def test_what_was_to_be_raised_and_was_not_is_a_failure_of_its_case():
    def item(error):
        with pytest.raises(ValueError):  # noqa: PT011
            raise error

    seen = each_case("error", [ValueError(), KeyError(), TypeError()], ids=repr)(item)
    with pytest.raises(ExceptionGroup, match="2 cases failed"):
        seen()

    def silent(number):
        with pytest.raises(ValueError):  # noqa: PT011
            even(number)

    with pytest.raises(pytest.fail.Exception) as raised:
        each_case("number", [2])(silent)()
    assert raised.value.__notes__ == ["case: 2"]


def test_every_case_of_a_coroutine_function_runs():
    @each_case("number", [1, 2, 3])
    async def item(number):
        await trio.lowlevel.checkpoint()
        even(number)

    with pytest.raises(ExceptionGroup, match="2 cases failed"):
        trio.run(item)


def test_every_case_is_in_one_shard():
    seen: list[int] = []

    @each_case("number", range(7), shards=3)
    def item(number):
        seen.append(number)

    assert [mark.args for mark in item.pytestmark] == [("shard", range(3))]
    item(shard=0)
    assert seen == [0, 3, 6]
    item(shard=1)
    item(shard=2)
    assert sorted(seen) == [*range(7)]


def test_a_test_without_cases_or_with_marks_of_one_is_refused():
    with pytest.raises(AssertionError, match="finds nothing"):
        each_case("number", [])
    with pytest.raises(AssertionError, match="no marks"):
        each_case("number", [pytest.param(1, marks=pytest.mark.slow)])
