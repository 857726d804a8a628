"""inferd drain: have the daemon finish what it has, and end."""

import argparse

from inferd.cli.console import EXIT_OK
from inferd.cli.daemon import add_socket_argument, carry_out
from inferd.terminal import say
from inferd.wire.commands import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_socket_argument(parser)
    parser.epilog = (
        "As SIGTERM does: nothing new is taken, what runs and waits gets drain_s to "
        "finish. For root and the user whom the daemon runs as."
    )


def run(arguments: argparse.Namespace) -> int:
    """Order it; the daemon goes on by itself."""
    carry_out(Command(command="drain"), arguments.directory)
    say("draining")
    return EXIT_OK
