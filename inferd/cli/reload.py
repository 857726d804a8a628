"""inferd reload: have the daemon read its configuration again."""

import argparse

from msgspec import UNSET

from inferd.cli.console import EXIT_OK
from inferd.cli.daemon import add_socket_argument, carry_out
from inferd.terminal import say
from inferd.wire.commands import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_socket_argument(parser)
    parser.epilog = (
        "What runs and waits is not touched. A configuration that is wrong changes "
        "nothing. For root and the user whom the daemon runs as."
    )


def run(arguments: argparse.Namespace) -> int:
    """Order it; tell what is in force now, and what needs a restart."""
    reply = carry_out(Command(command="reload"), arguments.directory)
    applied = [] if reply.applied is UNSET else reply.applied
    waiting = [] if reply.needs_restart is UNSET else reply.needs_restart
    if applied:
        say(f"in force: {', '.join(applied)}")
    if waiting:
        say(f"needs a restart: {', '.join(waiting)}")
    if not applied and not waiting:
        say("nothing has changed")
    return EXIT_OK
