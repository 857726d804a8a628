"""inferd cancel: end requests by their id."""

import argparse

from msgspec import UNSET

from inferd.cli.console import EXIT_OK, CommandError, say
from inferd.cli.daemon import ANSWER_S, START, add_socket_argument, configured_directory
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.client.sync import command
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
    directory = arguments.directory or configured_directory()
    order = Command(command="cancel", id=arguments.id)
    try:
        reply = command(order, directory, timeout_s=ANSWER_S)
    except NoDaemonError as error:
        raise CommandError(str(error), hint=START) from error
    except TimeoutError as error:
        raise CommandError(f"no reply within {ANSWER_S:g} s") from error
    except (ClientError, OSError) as error:
        raise CommandError(str(error)) from error
    if not reply.ok:
        raise CommandError("not cancelled" if reply.error is UNSET else reply.error)
    say("cancelled" if reply.cancelled is UNSET else f"cancelled {reply.cancelled}")
    return EXIT_OK
