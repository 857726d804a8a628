"""inferd chat: a conversation in the terminal."""

import argparse
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from inferd.cli.connect import (
    add_socket_argument,
    configured_directory,
    serves_sample,
)
from inferd.cli.console import EXIT_OK, CommandError, stdin
from inferd.cli.numbers import finite_float, u32

EXTRA: Final = {
    "markdown_it": "markdown-it-py",
    "prompt_toolkit": "prompt-toolkit",
    "rich": "rich",
}
"""Modules of the extra ``chat``, and their packages."""
TOKEN_MAX_BYTES: Final = 4096
"""Bytes of a file with a token, which has some 50."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="name or alias of the model, as inferd model list prints it (default: the "
        "first that can)",
    )
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    parser.add_argument("--temperature", type=finite_float, metavar="T")
    parser.add_argument(
        "--max-tokens", type=u32, metavar="N", help="of one answer at most"
    )
    parser.add_argument(
        "--continue",
        dest="continues",
        action="store_true",
        help="go on with the chat that was used last",
    )
    parser.add_argument(
        "--private", action="store_true", help="keep nothing of this session on disk"
    )
    add_socket_argument(parser)
    parser.add_argument(
        "--url", metavar="URL", help="address of a bridge, in place of the sockets"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="has the token of the bridge"
    )
    parser.epilog = (
        "In the chat, /help lists the commands. Ctrl-C stops an answer, Ctrl-D leaves. "
        "Chats are kept in $XDG_STATE_HOME/inferd/chats, for their user alone."
    )


def run(arguments: argparse.Namespace) -> int:
    """Chat until the user leaves."""
    check_terminal()
    check_extra()
    # what the extra has, and all that needs it, is imported by no other command
    from inferd.cli.chat.opening import chat  # noqa: PLC0415

    token = read_token(arguments.token_file)
    if arguments.url is None:
        if token is not None:
            raise CommandError("--token-file needs --url")
        arguments.directory = arguments.directory or configured_directory()
        arguments.is_sample = serves_sample(arguments.directory)
    elif arguments.directory is not None:
        raise CommandError("--url and --directory: one of them")
    chat(arguments, token)
    return EXIT_OK


def check_terminal() -> None:
    """Refuse to chat with anything but a terminal.

    Raises:
        CommandError: stdin or stdout is none.
    """
    if not (stdin().isatty() and os.isatty(1)):
        raise CommandError(
            "inferd chat needs a terminal",
            hint='inferd generate "Why is the sky blue?"',
        )


def missing_packages() -> list[str]:
    """Return the packages of the extra that are not installed."""
    return [name for module, name in EXTRA.items() if find_spec(module) is None]


def check_extra() -> None:
    """Refuse where packages are missing.

    Raises:
        CommandError: some are.
    """
    if missing := missing_packages():
        raise CommandError(
            f"inferd chat needs {', '.join(missing)}",
            hint=f"in a checkout: make setup; elsewhere: {sys.executable} -m pip install "
            "'inferd[chat]'",
        )


def read_token(path: Path | None) -> str | None:
    """Read the token of a bridge.

    Raises:
        CommandError: it cannot be read.
    """
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.read(TOKEN_MAX_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: has no token that can be read") from error


def terminal_size() -> os.terminal_size:
    """Return the columns and rows of the terminal."""
    return shutil.get_terminal_size()
