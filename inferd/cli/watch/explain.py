"""inferd explain: tell the life of one request, or list the last ones."""

import argparse
import shutil

import msgspec
from msgspec import UNSET

from inferd.cli.connect import add_socket_argument, send_command
from inferd.cli.console import EXIT_OK, CommandError
from inferd.cli.watch.story import HEAD, row, story
from inferd.terminal import print_json, print_line, print_stderr
from inferd.wire.commands import Command, Reply


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        help="the id that the request was sent with (default: list the last requests)",
    )
    parser.add_argument(
        "--number",
        type=int,
        metavar="N",
        help="the daemon's own number of the request, as the list has it",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the records as lines of JSON"
    )
    add_socket_argument(parser)
    parser.epilog = (
        "Tells your own requests, or everybody's if you are root or the daemon's user. "
        "The daemon keeps limits.max_explained requests that have ended, and no text of "
        "any."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the story of the newest request that is meant, or a line for each."""
    is_list = arguments.id is None and arguments.number is None
    reply = _ask(arguments)
    if reply.explained is UNSET:
        raise CommandError("the daemon is older than this command and keeps no records")
    if arguments.json:
        for record in reply.explained:
            print_json(msgspec.json.encode(record))
    elif is_list:
        _print_list(reply)
    else:
        _print_story(reply)
    return EXIT_OK


def _ask(arguments: argparse.Namespace) -> Reply:
    """Ask the daemon for the records.

    Raises:
        CommandError: it knows no such request; digits may be meant as its number.
    """
    asked = Command(
        command="explain",
        id=arguments.id,
        number=UNSET if arguments.number is None else arguments.number,
    )
    try:
        return send_command(asked, arguments.directory)
    except CommandError as error:
        if (arguments.id or "").isdecimal():
            hint = f"inferd explain --number {arguments.id}"
            raise CommandError(error.text, hint=hint) from error
        raise


def _print_list(reply: Reply) -> None:
    """Print a line for each request, the last at the bottom."""
    records = reply.explained or []
    if not records:
        print_stderr("no request has come since the daemon began")
        return
    width = shutil.get_terminal_size().columns
    print_line(HEAD)
    for record in reversed(records):
        print_line(row(record, width))
    if reply.omitted is not UNSET:
        print_stderr(
            f"{reply.omitted} earlier ones are kept; --json or an ID tells more"
        )


def _print_story(reply: Reply) -> None:
    newest, *others = reply.explained or []
    for line in story(newest):
        print_line(line)
    if others:
        numbers = ", ".join(f"{each.number}" for each in others[:5])
        n_more = len(others) - 5
        more = f" and {n_more} more" if n_more > 0 else ""
        print_stderr(
            f"{len(others)} earlier ones have the same id: --number {numbers}{more}"
        )
