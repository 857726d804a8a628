"""Texts that are piped through a command: JSON lines in, JSON lines out."""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Final, NamedTuple

import msgspec
from msgspec import Raw

from inferd.cli.console import CommandError, stdin
from inferd.client.exchange import RequestFailedError
from inferd.limits import MAX_FRAME_BYTES
from inferd.terminal import json_line
from inferd.wire.codec import DECODE_FAILURES

STDIN: Final = "-"
LINES: Final = (
    'A line of stdin is a JSON string, or an object with a string "text", '
    "whose other fields are kept."
)
"""What the help of a command says."""

_LINE: Final[msgspec.json.Decoder[str | dict[str, Raw]]] = msgspec.json.Decoder(
    str | dict[str, Raw]
)
_TEXT: Final = msgspec.json.Decoder(str)


class Text(NamedTuple):
    """A text, and what it came with."""

    text: str
    place: str
    """Where it stood, for people."""
    fields: Mapping[str, object]
    """What is written with the result."""


def add_texts_argument(parser: argparse.ArgumentParser, name: str) -> None:
    """Declare texts as arguments, or lines of stdin."""
    parser.add_argument(
        "texts",
        nargs="*",
        default=[],
        metavar=name.upper(),
        help=f"a {name}; none, or - alone, reads JSON lines from stdin",
    )


def texts_of(arguments: Sequence[str], name: str) -> Iterator[Text]:
    """Give the texts of the command line, else those of stdin, one line at a time.

    Raises:
        CommandError: a line is no JSON, or has no text.
    """
    if list(arguments) in ([], [STDIN]):
        return _read(stdin().buffer)
    return (
        Text(text, f"{name} {number}", {"text": text})
        for number, text in enumerate(arguments, 1)
    )


def print_line(fields: Mapping[str, object]) -> None:
    """Print a result."""
    json_line(msgspec.json.encode(fields))


def refusal(
    error: RequestFailedError, name: str, texts: Sequence[Text]
) -> CommandError:
    """Say what the daemon refused, and where that stood: ``name[0]`` is the first text."""

    def place(found: re.Match[str]) -> str:
        index = int(found[1])
        return texts[index].place if index < len(texts) else found[0]

    return CommandError(re.sub(rf"\b{name}\[(\d{{1,9}})\]", place, str(error)))


def _read(source: BinaryIO) -> Iterator[Text]:
    lines = iter(lambda: source.readline(MAX_FRAME_BYTES + 1), b"")
    for number, line in enumerate(lines, 1):
        place = f"line {number}"
        if len(line) > MAX_FRAME_BYTES:
            raise CommandError(f"{place}: over {MAX_FRAME_BYTES} bytes")
        try:
            yield _parse(line, place)
        except msgspec.ValidationError as error:
            raise CommandError(
                f'{place}: neither a string nor an object with a string "text"'
            ) from error
        except DECODE_FAILURES as error:
            raise CommandError(f"{place}: not JSON: {error}") from error


def _parse(line: bytes, place: str) -> Text:
    parsed = _LINE.decode(line.decode())
    if isinstance(parsed, str):
        return Text(parsed, place, {"text": parsed})
    return Text(_TEXT.decode(parsed.get("text", b"null")), place, parsed)
