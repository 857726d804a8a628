"""Tests of many cases that take next to no time: one item runs them all."""

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

import pytest

FAILURES: Final = (Exception, pytest.fail.Exception, BaseExceptionGroup)
"""What a case ends with that has failed; that of `pytest.fail` is no `Exception`."""


def each_case(
    names: str | Sequence[str],
    cases: Iterable[Any],
    *,
    ids: Iterable[object] | Callable[[Any], object] | None = None,
    shards: int = 1,
) -> Callable[[Callable[..., Any]], Any]:
    """Have one item of a test run all cases, and fail with those that fail, by name.

    It is `pytest.mark.parametrize` without the milliseconds that an item for each case
    costs to collect, to set up and to report. All cases of an item share its fixtures.

    Args:
        names: The arguments that a case gives, as `pytest.mark.parametrize` has them.
        cases: The values of each, which `pytest.param` may name.
        ids: The names of the cases, or what makes one of a value; otherwise the values.
        shards: The number of items, for processes to share what takes long together.
    """
    arguments = _arguments_of(names)
    values = [_values_of(case, len(arguments)) for case in cases]
    labels = list(ids) if isinstance(ids, Iterable) else None
    assert values, "a test without cases finds nothing"
    assert len(values) >= shards, "a shard without cases finds nothing"
    assert labels is None or len(labels) == len(values), "a name for each case"

    def label(number: int) -> str:
        if labels is not None:
            return str(labels[number])
        if names_one := values[number][0]:
            return names_one
        make = ids if callable(ids) else reprlib.repr
        return "-".join(str(make(value)) for value in values[number][1])

    def calls(shard: int) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(shard, len(values), shards):
            yield label(number), dict(zip(arguments, values[number][1], strict=True))

    return functools.partial(_looped, arguments=arguments, calls=calls, shards=shards)


def _arguments_of(names: str | Sequence[str]) -> list[str]:
    parts = names.split(",") if isinstance(names, str) else names
    return [part.strip() for part in parts]


def _values_of(case: Any, count: int) -> tuple[str | None, Sequence[Any]]:
    """Give the name of a case, if it has its own, and a value for each argument."""
    if isinstance(case, type(pytest.param())):
        assert not case.marks, "a case has no marks of its own"
        return cast("str | None", case.id), case.values
    return None, (case,) if count == 1 else tuple(case)


def _looped(
    test: Callable[..., Any],
    *,
    arguments: list[str],
    calls: Callable[[int], Iterator[tuple[str, dict[str, Any]]]],
    shards: int,
) -> Any:
    """Write the test that pytest is to see: without these arguments."""
    if inspect.iscoroutinefunction(test):

        async def whole(*given: Any, **fixtures: Any) -> None:
            failed = []
            for name, case in calls(fixtures.pop("shard", 0)):
                try:
                    await test(*given, **fixtures, **case)
                except FAILURES as error:
                    failed.append(_named(error, name))
            _raise(failed)

    else:

        def whole(*given: Any, **fixtures: Any) -> None:  # type: ignore[misc]
            failed = []
            for name, case in calls(fixtures.pop("shard", 0)):
                try:
                    test(*given, **fixtures, **case)
                except FAILURES as error:
                    failed.append(_named(error, name))
            _raise(failed)

    functools.update_wrapper(whole, test, updated=())
    whole.pytestmark = list(getattr(test, "pytestmark", ()))  # type: ignore[attr-defined]
    whole.__signature__ = _without(test, arguments, shards)  # type: ignore[attr-defined]
    if shards == 1:
        return whole
    return pytest.mark.parametrize("shard", range(shards))(whole)


def _without(
    test: Callable[..., Any], arguments: list[str], shards: int
) -> inspect.Signature:
    signature = inspect.signature(test)
    rest = {**signature.parameters}
    for argument in arguments:
        del rest[argument]
    if shards > 1:
        rest["shard"] = inspect.Parameter("shard", inspect.Parameter.KEYWORD_ONLY)
    return signature.replace(parameters=list(rest.values()))


def _named(error: BaseException, name: str) -> BaseException:
    error.add_note(f"case: {name}")
    return error


def _raise(failed: list[BaseException]) -> None:
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} cases failed", failed)
