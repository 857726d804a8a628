"""inferd load: load a backend's model now, before a request needs it."""

import argparse

from inferd.cli.connect import add_socket_argument, send_command
from inferd.cli.console import EXIT_OK
from inferd.limits.residency import LOAD_COMMAND_S
from inferd.terminal import print_stderr
from inferd.wire.commands import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "backend", metavar="BACKEND", help="name or alias of the backend"
    )
    add_socket_argument(parser)
    parser.epilog = (
        "Returns once the model is loaded, or says why it cannot be; interrupted, it goes on loading. "
        'For backends with load = "demand"; for root and the daemon\'s user.'
    )


def run(arguments: argparse.Namespace) -> int:
    """Send the command, and wait until it is carried out."""
    order = Command(command="load", backend=arguments.backend)
    send_command(order, arguments.directory, timeout_s=LOAD_COMMAND_S)
    print_stderr("loaded")
    return EXIT_OK
