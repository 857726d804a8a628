"""inferd cancel: end requests by their id."""

import argparse

from msgspec import UNSET

from inferd.cli.connect import add_socket_argument, send_command
from inferd.cli.console import EXIT_OK
from inferd.terminal import print_stderr
from inferd.wire.commands import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "id", metavar="ID", help="the id that the request was sent with"
    )
    parser.add_argument(
        "--principal",
        metavar="NAME",
        help="only the requests that a gateway sent for NAME",
    )
    add_socket_argument(parser)
    parser.epilog = (
        "Ends every request with this id, queued or running, on any connection: "
        "your own requests, or everybody's if you are root or the daemon's user."
    )


def run(arguments: argparse.Namespace) -> int:
    """Cancel the requests, and print how many there were."""
    reply = send_command(
        Command(
            command="cancel",
            id=arguments.id,
            principal=UNSET if arguments.principal is None else arguments.principal,
        ),
        arguments.directory,
    )
    print_stderr(
        "cancelled" if reply.cancelled is UNSET else f"cancelled {reply.cancelled}"
    )
    return EXIT_OK
