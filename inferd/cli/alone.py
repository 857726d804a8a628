"""``inferd`` without a command, on a terminal: help, and an offer where no daemon runs."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from inferd.cli.chat.asking import end_by_signals
from inferd.cli.chat.chat import missing_packages
from inferd.cli.connect import configured_directory
from inferd.cli.console import EXIT_OK, stdin
from inferd.cli.own_daemon import own_daemon
from inferd.cli.unreachable import find_stopped
from inferd.client.connection.sync import connect
from inferd.client.discovery import NoDaemonError
from inferd.client.peer_check import UntrustedServerError
from inferd.surfaces import V2
from inferd.terminal import print_line, print_stderr, print_text

QUESTION: Final = "Start one for a chat, which ends with it? [y/N] "


def is_on_terminal() -> bool:
    """Tell whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and os.isatty(1)


def run(show_help: Callable[[], None], chat: Callable[[], int]) -> int:
    """Show the help; where no daemon runs, offer to start one and to chat with it.

    Args:
        show_help: prints it.
        chat: runs ``inferd chat``.
    """
    show_help()
    directory = configured_directory()
    if not is_absent(directory):
        return EXIT_OK
    print_line("")
    print_line("No daemon runs here.")
    if missing_packages() or not agrees():
        return EXIT_OK
    end_by_signals()
    with tempfile.TemporaryDirectory(prefix="inferd-chat-") as scratch:
        log = Path(scratch) / "daemon.log"
        with own_daemon("inferd", [], directory, log):
            code = chat()
            print_stderr("inferd: stopping the daemon")
    return code


def is_absent(directory: Path | None) -> bool:
    """Tell whether nothing would answer a client of this user.

    A daemon that refuses this user is there, and so is a stopped service, which connecting
    would start.
    """
    if find_stopped(directory) is not None:
        return False
    try:
        connect(V2.socket, directory).close()
    except UntrustedServerError:
        return False
    except NoDaemonError as error:
        causes = error.tried.values()
        return all(
            isinstance(each, FileNotFoundError | ConnectionRefusedError)
            for each in causes
        )
    return False


def agrees() -> bool:
    """Ask for a yes; anything else is none."""
    print_text(QUESTION)
    try:
        return stdin().readline().strip().lower() in ("y", "yes")
    except UnicodeDecodeError:
        return False
