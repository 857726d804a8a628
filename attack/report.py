"""The report: JSON for programs, tables for people."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from attack.measures import Latency
from attack.trial import Outcome, Verdict

FORMAT: Final = 1
"""Of the JSON; a change of meaning raises it."""
HEAD: Final = """\
# Attacks

What `make attack` found; `attack/README.md` tells how to run a part of it.
One user attacks, another one asks plain questions: on a new connection each, and on one that stays open.
Times are milliseconds until the end of the victim's answer, as p50 / p99 / longest; 30,000 and more is where the victim gave up.
A request that took long counts for all that would have been asked meanwhile.
"Idle" and "attacked" are of one run on one daemon.
"""


class Report(msgspec.Struct, kw_only=True):
    """What is known of all attacks, each as it was last tried at each daemon."""

    format: int = FORMAT
    machine: dict[str, str | int] = {}
    outcomes: dict[str, list[Outcome]] = {}
    """By the name of the daemon: ``before``, ``after``, ``unit``."""

    def add(self, daemon: str, outcome: Outcome) -> None:
        """Take the place of what was known of the attack."""
        known = self.outcomes.get(daemon, [])
        others = [each for each in known if each.attack != outcome.attack]
        self.outcomes[daemon] = [*others, outcome]


def read_report(path: Path) -> Report:
    """Read what is there, if anything is."""
    if not path.exists():
        return Report()
    return msgspec.json.decode(path.read_bytes(), type=Report)


def write_report(report: Report, path: Path) -> None:
    """Write the JSON, and the tables beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = msgspec.json.format(msgspec.json.encode(report), indent=1)
    path.write_bytes(data + b"\n")
    path.with_suffix(".md").write_text(as_markdown(report))


def as_markdown(report: Report) -> str:
    """Write the report as a person reads it."""
    facts = [
        f"{name.replace('_', ' ')} {value}" for name, value in report.machine.items()
    ]
    parts = [HEAD, f"Machine: {', '.join(facts) or 'unknown'}.\n"]
    for daemon, outcomes in report.outcomes.items():
        commits = sorted({each.commit for each in outcomes})
        parts.append(f"The daemon `{daemon}` has the commit {', '.join(commits)}.\n")
    parts.append("\n".join(_loads(report.outcomes)) + "\n")
    parts.append("\n".join(_probes(report.outcomes)) + "\n")
    for daemon, outcomes in report.outcomes.items():
        parts.append(f"## What did not hold, {daemon}\n")
        parts.append("\n".join(_failures(outcomes)) + "\n")
    return "\n".join(parts)


def _loads(by_daemon: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    yield "## Victims beside an attack\n"
    yield "| attack | daemon | new, idle | new, attacked | open, idle | open, attacked | victim's requests that failed | attacker's requests | workers kept | RSS in MB, before and after | verdict |"
    yield "|" + "---|" * 11
    for daemon, each in _ordered(by_daemon):
        if each.latencies:
            yield _row(daemon, each)


def _row(daemon: str, found: Outcome) -> str:
    cells = [found.attack, daemon]
    cells += [
        _words(found.latencies.get(f"{when} {which}"))
        for which in ("new", "open")
        for when in ("idle", "attacked")
    ]
    cells += [_failed(found), _codes(found.codes)]
    before, after = found.holdings.get("before"), found.holdings.get("after")
    if before is None or after is None:
        cells += ["?", "?"]
    else:
        kept = len({*before.workers} & {*after.workers})
        cells += [
            f"{kept} of {len(before.workers)}",
            f"{before.rss_mb} / {after.rss_mb}",
        ]
    return f"| {' | '.join([*cells, f'**{found.verdict}**'])} |"


def _words(found: Latency | None) -> str:
    if found is None:
        return "?"
    return (
        f"{found.p50_ms:,.1f} / {found.p99_ms:,.1f} / {found.max_ms:,.1f} (n {found.n})"
    )


def _failed(found: Outcome) -> str:
    codes: dict[str, int] = {}
    for when, each in found.latencies.items():
        for code, n in each.codes.items():
            if not when.startswith("idle"):
                codes[code] = codes.get(code, 0) + n
    codes.pop("done", None)
    return _codes(codes) or "none"


def _codes(codes: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {code}" for code, n in sorted(codes.items()))


def _probes(by_daemon: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    yield "## Tries\n"
    yield "| attack | daemon | what | held | verdict |"
    yield "|---|---|---|---|---|"
    for daemon, each in _ordered(by_daemon):
        if not each.latencies:
            held = sum(check.is_held for check in each.checks)
            verdict = f"**{each.verdict}**"
            if each.verdict is Verdict.SKIPPED:
                verdict += f": {each.reason}"
            yield f"| {each.attack} | {daemon} | {each.about} | {held} of {len(each.checks)} | {verdict} |"


def _ordered(
    by_daemon: Mapping[str, Sequence[Outcome]],
) -> Iterator[tuple[str, Outcome]]:
    names = dict.fromkeys(each.attack for all_ in by_daemon.values() for each in all_)
    for name in names:
        for daemon, outcomes in by_daemon.items():
            yield from ((daemon, each) for each in outcomes if each.attack == name)


def _failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for each in outcomes:
        if each.verdict is Verdict.BROKEN:
            yield f"- {each.attack} ({each.about})"
            yield from (
                f"  - {_inline(check.name)}: {_inline(check.detail)}"
                for check in each.checks
                if not check.is_held
            )
            if each.reason:
                yield f"  - {_inline(each.reason)}"
        yield from (f"  - {each.attack}: {_inline(note)}" for note in each.notes)
    if all(each.verdict is not Verdict.BROKEN for each in outcomes):
        yield "Nothing."


def _inline(text: str) -> str:
    """Show a text that may be anybody's on one line, without what terminals act on."""
    return "".join(each if each.isprintable() else " " for each in text)
