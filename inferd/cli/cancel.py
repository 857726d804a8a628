"""inferd cancel: end requests by their id."""

import argparse

from msgspec import UNSET

from inferd.cli.console import EXIT_OK
from inferd.cli.daemon import add_socket_argument, carry_out
from inferd.terminal import say
from inferd.wire.commands import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "id", metavar="ID", help="the id that the request was sent with"
    )
    add_socket_argument(parser)
    parser.epilog = (
        "Every request of this id ends, whether it waits or runs, whichever connection "
        "sent it: your own ones, or all where the daemon runs as you, or you are root."
    )


def run(arguments: argparse.Namespace) -> int:
    """Cancel, and tell how many requests that were."""
    reply = carry_out(Command(command="cancel", id=arguments.id), arguments.directory)
    say("cancelled" if reply.cancelled is UNSET else f"cancelled {reply.cancelled}")
    return EXIT_OK
