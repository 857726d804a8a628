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
    r"\| Threats \| (?P<threats>none|F-\d+(?:, F-\d+)*) \|\n\n"
)
TEMPLATE = "0000"
ADR_INTRO = """# Decisions

One record per decision, one page each.
An accepted record does not change, except its status line: a new one supersedes it.
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


def adr_index(directory: Path) -> str:
    """Write the list of all records but the template.

    Raises:
        UnreadableError: a header is wrong, or a number is used twice or leads nowhere.
    """
    records = [read_adr(path) for path in sorted(directory.glob("[0-9]*.md"))]
    numbers = [record.number for record in records]
    for record in records:
        if numbers.count(record.number) > 1:
            raise UnreadableError(f"{record.file}: {record.number} is used twice")
        if record.successor and record.successor not in numbers:
            raise UnreadableError(f"{record.file}: there is no {record.successor}")
    rows = [
        (
            f"[{record.number}]({record.file})",
            record.title,
            record.status,
            record.date,
            record.touches,
            record.threats,
        )
        for record in records
        if record.number != TEMPLATE
    ]
    head = ("number", "decision", "status", "date", "touches", "threats")
    return NOTE + ADR_INTRO + table(head, rows)


def read_adr(path: Path) -> Adr:
    """Read a record's header.

    Raises:
        UnreadableError: it is not as the template has it.
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
