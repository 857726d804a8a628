"""What came of the cases, counted; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from typing import NamedTuple

from msgspec import Struct

from proofs.server_suite.expected import DIFFERS, reason_of


class Result(Struct, frozen=True):
    """What came of one case."""

    case: str
    outcome: str
    is_text_compared: bool
    why: str


class Tally(NamedTuple):
    """All cases."""

    counts: Mapping[str, int]
    differing: Mapping[str, Sequence[str]]
    """By their reason."""
    problems: Sequence[str]
    """Cases that fail and are not known to, and those that pass although they are listed."""


def tally(results: Iterable[Result], lacking: AbstractSet[str] = frozenset()) -> Tally:
    """Count the cases.

    Args:
        results: of all cases.
        lacking: functions of which some assertions are left out.
    """
    counts = Counter(passed=0, passed_but_for_their_model=0, differ=0, failed=0)
    differing: dict[str, list[str]] = {}
    problems: list[str] = []
    for each in results:
        reason = reason_of(each.case)
        if each.outcome == "passed":
            is_whole = each.is_text_compared and each.case.split("[")[0] not in lacking
            counts["passed" if is_whole else "passed_but_for_their_model"] += 1
            if reason:
                problems.append(f"{each.case} is listed, and passes")
        elif reason:
            counts["differ"] += 1
            differing.setdefault(reason, []).append(each.case)
        else:
            counts["failed"] += 1
            problems.append(f"{each.case}: {each.why}")
    return Tally(counts, differing, problems)


def unused(results: Sequence[Result]) -> list[str]:
    """Return the entries of the list that no case has."""
    cases = [each.case for each in results]
    return [
        start
        for start in DIFFERS
        if not any(case.startswith(f"unit/{start}") for case in cases)
    ]


def note(reason: str, cases: Sequence[str]) -> str:
    """Write a line of the report about cases that differ for one reason."""
    names = dict.fromkeys(case.removeprefix("unit/").split("[")[0] for case in cases)
    words = "case differs" if len(cases) == 1 else "cases differ"
    return (
        f"{len(cases)} {words}: {reason} ({', '.join(f'`{name}`' for name in names)})"
    )
