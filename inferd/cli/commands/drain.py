"""inferd drain: finish the running and queued requests, then stop the daemon."""

import argparse

from inferd.cli.connect import add_socket_argument, send_command
from inferd.cli.console import EXIT_OK
from inferd.terminal import print_stderr
from inferd.wire.commands import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_socket_argument(parser)
    parser.epilog = (
        "Like SIGTERM: the daemon accepts no new requests, and gives running and queued "
        "ones limits.drain_s seconds to finish. For root and the daemon's user."
    )


def run(arguments: argparse.Namespace) -> int:
    """Send the command; it returns before the daemon has drained."""
    send_command(Command(command="drain"), arguments.directory)
    print_stderr("draining")
    return EXIT_OK
