"""inferd reload: make the daemon read its configuration again."""

import argparse

from msgspec import UNSET

from inferd.cli.connect import add_socket_argument, send_command
from inferd.cli.console import EXIT_OK
from inferd.limits.residency import LOAD_COMMAND_S
from inferd.terminal import print_stderr
from inferd.wire.commands import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_socket_argument(parser)
    parser.epilog = (
        "Running and queued requests are not affected; returns once backends that differ "
        "are replaced. An invalid configuration changes nothing. For root and the "
        "daemon's user."
    )


def run(arguments: argparse.Namespace) -> int:
    """Send the command; print which settings changed and which need a restart."""
    reply = send_command(
        Command(command="reload"), arguments.directory, timeout_s=LOAD_COMMAND_S
    )
    applied = [] if reply.applied is UNSET else reply.applied
    pending = [] if reply.needs_restart is UNSET else reply.needs_restart
    if applied:
        print_stderr(f"in force: {', '.join(applied)}")
    if pending:
        print_stderr(f"needs a restart: {', '.join(pending)}")
    if not applied and not pending:
        print_stderr("nothing has changed")
    return EXIT_OK
