"""Checks, their findings, and a runner for them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec import Struct

TEXT_CHARS: Final = 2000
"""Characters of a detail or a hint: a daemon, or what listens in its place, may say more.
F-44."""


class Verdict(StrEnum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of a check, with details for people and programs."""

    check: str = ""
    """Name of the check, which never changes."""
    verdict: Verdict
    detail: str
    """One line for people."""
    hint: str = ""
    """A command that would help, or an empty string."""
    figures: dict[str, int] = {}
    """Numbers for programs; bytes, unless their names say otherwise."""


def ok(detail: str) -> Finding:
    """Make a finding for a check that found no problem."""
    return Finding(verdict=Verdict.OK, detail=detail)


def warning(detail: str, hint: str = "") -> Finding:
    """Make a finding for a problem that does not stop the daemon."""
    return Finding(verdict=Verdict.WARNING, detail=detail, hint=hint)


def failed(detail: str, hint: str = "") -> Finding:
    """Make a finding for a problem that stops the daemon from starting or serving."""
    return Finding(verdict=Verdict.FAILED, detail=detail, hint=hint)


def first(findings: Iterable[Finding]) -> Finding:
    """Return the first finding: that of a check whose problems are tried in order.

    Args:
        findings: of which the last is certain; those after the first are not computed.
    """
    return next(iter(findings))


@dataclass(frozen=True, slots=True)
class Check:
    """A named check; it never changes anything on the machine."""

    name: str
    """In kebab-case; never changes."""
    run: Callable[[], Finding]
    needs: Sequence[str] = ()
    """Names of checks whose failure makes this one pointless."""


def run_checks(checks: Sequence[Check]) -> Iterator[Finding]:
    """Run the checks in order; skip those whose ``needs`` failed or were skipped."""
    unmet: set[str] = set()
    for check in checks:
        missing = [need for need in check.needs if need in unmet]
        if missing:
            finding = Finding(
                verdict=Verdict.SKIPPED, detail=f"needs {', '.join(missing)}"
            )
        else:
            finding = _attempt(check)
        if finding.verdict in (Verdict.FAILED, Verdict.SKIPPED):
            unmet.add(check.name)
        yield Finding(
            check=check.name,
            verdict=finding.verdict,
            detail=_cut(finding.detail),
            hint=_cut(finding.hint),
            figures=finding.figures,
        )


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}…"


def _attempt(check: Check) -> Finding:
    """Run a check; what it may not look at is a failure of this check alone."""
    try:
        return check.run()
    except OSError as error:
        path = error.filename or "something"
        hint = f"namei -l {path}" if error.filename else ""
        if isinstance(error, PermissionError):
            hint = "sudo inferd doctor"
        return failed(f"{path}: {error.strerror or error}: cannot be looked at", hint)
