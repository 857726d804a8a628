"""A check, what it finds, and running them in order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct


class Verdict(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a check found."""

    check: str = ""
    """The check's stable name."""
    verdict: Verdict
    detail: str
    """One line: what was seen."""
    hint: str = ""
    """Something to type, where that would help."""
    figures: dict[str, int] = {}
    """The numbers behind it, for programs; bytes, unless their names say otherwise."""


def ok(detail: str) -> Finding:
    """All is well."""
    return Finding(verdict=Verdict.OK, detail=detail)


def warning(detail: str, hint: str = "") -> Finding:
    """Nothing is broken, but somebody should know."""
    return Finding(verdict=Verdict.WARNING, detail=detail, hint=hint)


def failed(detail: str, hint: str = "") -> Finding:
    """The daemon would not start, or not serve."""
    return Finding(verdict=Verdict.FAILED, detail=detail, hint=hint)


@dataclass(frozen=True, slots=True)
class Check:
    """A question to the machine; asking never changes it."""

    name: str
    """Stable, in kebab-case."""
    ask: Callable[[], Finding]
    needs: Sequence[str] = ()
    """Checks whose failure makes this one pointless."""


def examine(checks: Sequence[Check]) -> Iterator[Finding]:
    """Ask every question, in order; skip those whose needs failed."""
    unmet: set[str] = set()
    for check in checks:
        missing = [need for need in check.needs if need in unmet]
        if missing:
            finding = Finding(
                verdict=Verdict.SKIPPED, detail=f"needs {', '.join(missing)}"
            )
        else:
            finding = check.ask()
        if finding.verdict in (Verdict.FAILED, Verdict.SKIPPED):
            unmet.add(check.name)
        yield Finding(
            check=check.name,
            verdict=finding.verdict,
            detail=finding.detail,
            hint=finding.hint,
            figures=finding.figures,
        )
