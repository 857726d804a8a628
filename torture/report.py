"""The report: JSON for programs, a table for people."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from torture.catalogue import BY_KEY
from torture.outcome import Outcome

FORMAT: Final = 1
"""Of ``report.json``; a change of meaning raises it."""
MACHINE: Final = ("cpu", "cores", "memory_mb", "system")
"""Facts of the machine that are kept."""
JSON: Final = "report.json"
TABLE: Final = "report.md"
HEAD: Final = """\
# Torture

What `make torture` found; `python -m torture --help` tells how to run a part of it.
Each item has its seed, and `python -m torture R1 --seed SEED` draws the same again.
"Lost" is a request without a terminal frame, "doubled" one with two, "hung" one that took over a minute, "wrong" one with another answer than an undisturbed daemon gives.
After each item nothing of it may be left: no descriptor, child, thread, task, request, temporary file or shared memory.
"""


class Layout(NamedTuple):
    """What a report begins with, and the order of its items."""

    head: str
    keys: Sequence[str]


TORTURE: Final = Layout(HEAD, tuple(BY_KEY))


class Report(msgspec.Struct, kw_only=True):
    """What is known of all items, each as it was last tried."""

    format: int = FORMAT
    machine: dict[str, str | int] = {}
    """That of the first item, and of all that name no other."""
    outcomes: list[Outcome] = []

    def add(self, outcome: Outcome, layout: Layout = TORTURE) -> None:
        """Take the place of what was known of the item."""
        others = [each for each in self.outcomes if each.item != outcome.item]
        self.outcomes = sorted(
            [*others, outcome], key=lambda each: layout.keys.index(each.item)
        )


def read_report(directory: Path) -> Report:
    """Read what is there, if anything is."""
    path = directory / JSON
    if not path.exists():
        return Report()
    return msgspec.json.decode(path.read_bytes(), type=Report)


def write_report(report: Report, directory: Path, layout: Layout = TORTURE) -> None:
    """Write both files."""
    directory.mkdir(parents=True, exist_ok=True)
    data = msgspec.json.format(msgspec.json.encode(report), indent=1)
    (directory / JSON).write_bytes(data + b"\n")
    (directory / TABLE).write_text(as_markdown(report, layout.head))


def as_markdown(report: Report, head: str = HEAD) -> str:
    """Write the report as a person reads it."""
    parts = [head, _facts(report.machine), _table(report.outcomes)]
    parts += [_section(outcome, report.machine) for outcome in report.outcomes]
    return "\n".join(parts)


def _facts(machine: Mapping[str, str | int]) -> str:
    facts = [f"{name.replace('_', ' ')} {value}" for name, value in machine.items()]
    return f"Machine: {', '.join(facts) or 'unknown'}.\n"


def _table(outcomes: Sequence[Outcome]) -> str:
    rows = ["| item | what | verdict | size | seconds |", "|---|---|---|---|---|"]
    rows += [
        f"| {each.item} | {each.name} | **{each.verdict}** | {each.size} "
        f"| {each.seconds:.0f} |"
        for each in outcomes
    ]
    return "\n".join(rows) + "\n"


def _section(outcome: Outcome, machine: Mapping[str, str | int]) -> str:
    return "\n".join(_lines(outcome, machine)) + "\n"


def _lines(outcome: Outcome, machine: Mapping[str, str | int]) -> Iterator[str]:
    yield f"## {outcome.item}. {outcome.name}\n"
    yield f"- Verdict: {outcome.verdict}{': ' * bool(outcome.reason)}{outcome.reason}"
    yield f"- Seed {outcome.seed}, size {outcome.size}, began {outcome.began}, commit {outcome.commit}, {outcome.seconds:.0f} s"
    if outcome.machine and outcome.machine != machine:
        yield f"- {_facts(outcome.machine).rstrip()}"
    if outcome.counts:
        yield f"- Counts: {_words(outcome.counts.items())}"
    if outcome.figures:
        yield f"- Figures: {_words(outcome.figures.items())}"
    for note in outcome.notes:
        yield f"- {note}"


def _words(pairs: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in pairs)
