"""The index of the decision records, from their headers."""

import datetime as dt
import re
from dataclasses import dataclass
from pathlib import Path

from tools.documents.markdown import NOTE, UnreadableError, table

HEADER = re.compile(
    r"# (?P<number>\d{4})\. (?P<title>\S.*)\n\n"
    r"\| \| \|\n\|---\|---\|\n"
    r"\| Status \| (?P<status>proposed|accepted|superseded by (?P<successor>\d{4})) \|\n"
    r"\| Date \| (?P<date>\d{4}-\d{2}-\d{2}) \|\n"
    r"\| Touches \| (?P<touches>\S[^|\n]*) \|\n"
    r"\| Threats \| (?P<threats>none|F-\d+(?:, F-\d+)*) \|\n"
    r"(?:\| Amended by \| (?P<amended>\[\d{4}\]\(\S+\)(?:, \[\d{4}\]\(\S+\))*) \|\n)?\n"
)
LINK = re.compile(r"\[(\d{4})\]\((\S+?)\)")
TEMPLATE = "0000"
ADR_INTRO = """# Decisions

One record per decision, one page each.
The decision of an accepted record does not change: a later record supersedes it, or amends a part of it.
Its header then links to the later record, and names of modules and classes follow the code.
The shape is that of [the template](0000-template.md).

"""


@dataclass(frozen=True)
class Adr:
    """The header of a record."""

    number: str
    file: str
    title: str
    status: str
    successor: str | None
    date: str
    touches: str
    threats: str
    amended: str | None


def adr_index(directory: Path) -> str:
    """Write the index of all records except the template.

    Raises:
        UnreadableError: a header is wrong, or a number is used twice or leads nowhere.
    """
    records = [read_adr(path) for path in sorted(directory.glob("[0-9]*.md"))]
    check_references(records)
    rows = [
        (
            f"[{record.number}]({record.file})",
            record.title,
            status_text(record),
            record.date,
            record.touches,
            record.threats,
        )
        for record in records
        if record.number != TEMPLATE
    ]
    head = ("number", "decision", "status", "date", "touches", "threats")
    return NOTE + ADR_INTRO + table(head, rows)


def check_references(records: list[Adr]) -> None:
    """Check that numbers are unique, and that later records exist under their names.

    Raises:
        UnreadableError: a record whose number or reference is wrong.
    """
    numbers = [record.number for record in records]
    files = {record.number: record.file for record in records}
    for record in records:
        if numbers.count(record.number) > 1:
            raise UnreadableError(f"{record.file}: {record.number} is used twice")
        if record.successor and record.successor not in numbers:
            raise UnreadableError(f"{record.file}: there is no {record.successor}")
        for number, file in LINK.findall(record.amended or ""):
            if files.get(number) != file or number <= record.number:
                raise UnreadableError(f"{record.file}: cannot be amended by {file}")


def status_text(record: Adr) -> str:
    """Write a record's status, with the numbers of the records that amend it."""
    amending = ", ".join(number for number, _ in LINK.findall(record.amended or ""))
    return f"{record.status}, amended by {amending}" if amending else record.status


def read_adr(path: Path) -> Adr:
    """Read a record's header.

    Raises:
        UnreadableError: the header differs from the template's.
    """
    found = HEADER.match(path.read_text(encoding="utf-8"))
    if found is None:
        raise UnreadableError(
            f"{path.name}: the header is not that of 0000-template.md"
        )
    if not path.name.startswith(f"{found['number']}-"):
        raise UnreadableError(
            f"{path.name}: the title has the number {found['number']}"
        )
    try:
        dt.date.fromisoformat(found["date"])
    except ValueError as error:
        raise UnreadableError(f"{path.name}: {found['date']}: {error}") from error
    return Adr(file=path.name, **found.groupdict())
