"""Texts as arguments or lines of stdin, and results as JSON lines.

Lines of stdin are JSON, or plain text: the first one that is not empty tells.
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Final, NamedTuple

import msgspec
from msgspec import Raw

from inferd.cli.connect import hint_for
from inferd.cli.console import CommandError, stdin
from inferd.client.exchange import RequestFailedError
from inferd.limits.protocol import MAX_FRAME_BYTES
from inferd.terminal import print_json
from inferd.wire.codec import DECODE_FAILURES

STDIN: Final = "-"
JSON_LINES_HELP: Final = (
    'A line of stdin is a JSON string, or an object with a string "text", whose other '
    "fields are copied to the output; if the first line is not JSON, each line is a text."
)
"""For the help of commands."""

_LINE: Final[msgspec.json.Decoder[str | dict[str, Raw]]] = msgspec.json.Decoder(
    str | dict[str, Raw]
)
_TEXT: Final = msgspec.json.Decoder(str)


class JsonLine(NamedTuple):
    """A line of stdin with its origin."""

    fields: Mapping[str, Raw]
    """Of its object; a text alone is ``text``."""
    origin: str
    """For error messages: ``line 3``."""


class InputText(NamedTuple):
    """A text with its origin and its fields."""

    text: str
    origin: str
    """Where it came from, for error messages: ``line 3`` or ``text 2``."""
    fields: Mapping[str, object]
    """Further fields of the line's object; printed with the result."""


def add_texts_argument(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the positional texts; without any they are read from stdin."""
    parser.add_argument(
        "texts",
        nargs="*",
        default=[],
        metavar=name.upper(),
        help=f"a {name}; without any, or with - alone, lines are read from stdin",
    )


def read_texts(arguments: Sequence[str], name: str) -> Iterator[InputText]:
    """Yield the texts of the command line, or those of stdin, one line at a time.

    Raises:
        CommandError: a line is not valid, or has no text.
    """
    if list(arguments) in ([], [STDIN]):
        return map(_text_of, read_lines(stdin().buffer))
    return (
        InputText(text, f"{name} {number}", {"text": text})
        for number, text in enumerate(arguments, 1)
    )


def print_result(fields: Mapping[str, object]) -> None:
    """Print a result as a line of JSON."""
    print_json(msgspec.json.encode(fields))


def input_error(
    error: RequestFailedError, name: str, texts: Sequence[InputText]
) -> CommandError:
    """Make an error that names the refused input by its origin instead of ``name[0]``."""

    def origin(found: re.Match[str]) -> str:
        index = int(found[1])
        return texts[index].origin if index < len(texts) else found[0]

    text = re.sub(rf"\b{name}\[(\d{{1,9}})\]", origin, str(error))
    return CommandError(text, hint=hint_for(error))


def read_lines(source: BinaryIO) -> Iterator[JsonLine]:
    """Yield the lines of a file: JSON strings or objects, or plain texts.

    Raises:
        CommandError: a line is not valid.
    """
    is_json: bool | None = None
    lines = iter(lambda: source.readline(MAX_FRAME_BYTES + 1), b"")
    for number, line in enumerate(lines, 1):
        origin = f"line {number}"
        if len(line) > MAX_FRAME_BYTES:
            raise CommandError(f"{origin}: over {MAX_FRAME_BYTES} bytes")
        if is_json is None and line.strip():
            is_json = _is_json(line)
        if is_json:
            yield JsonLine(_parse(line, origin), origin)
        elif text := _plain(line, origin):
            yield JsonLine({"text": Raw(msgspec.json.encode(text))}, origin)


def _is_json(line: bytes) -> bool:
    """Tell whether a first line is JSON, valid or not; a number alone is a text."""
    if line.lstrip().startswith(b"{"):
        return True
    try:
        found = msgspec.json.decode(line)
    except DECODE_FAILURES:
        return False
    return isinstance(found, str | list)


def _plain(line: bytes, origin: str) -> str:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CommandError(f"{origin}: not UTF-8") from error


def _parse(line: bytes, origin: str) -> Mapping[str, Raw]:
    try:
        parsed = _LINE.decode(line.decode())
    except msgspec.ValidationError as error:
        raise _no_text(origin) from error
    except DECODE_FAILURES as error:
        raise CommandError(f"{origin}: not JSON: {error}") from error
    if isinstance(parsed, str):
        return {"text": Raw(msgspec.json.encode(parsed))}
    return parsed


def _text_of(line: JsonLine) -> InputText:
    try:
        text = _TEXT.decode(line.fields.get("text", b"null"))
    except msgspec.ValidationError as error:
        raise _no_text(line.origin) from error
    except DECODE_FAILURES as error:
        raise CommandError(f"{line.origin}: not JSON: {error}") from error
    return InputText(text, line.origin, line.fields)


def _no_text(origin: str) -> CommandError:
    return CommandError(
        f'{origin}: neither a string nor an object with a string "text"'
    )
