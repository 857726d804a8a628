"""Talk to the daemon: where it is, and what is wrong when it does not answer."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET

from inferd.cli.configuration import load_config, socket_directory
from inferd.cli.console import CommandError
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError, RequestFailedError
from inferd.client.sync import READY, Client, command, connect, watch_status
from inferd.paths import EMBED_SOCKET, INFER_SOCKET, INFER_V2_SOCKET, RERANK_SOCKET
from inferd.wire.commands import Command, Reply

ANSWER_S: Final = 5.0
"""Seconds the admin socket gets to answer."""
START: Final = "inferd serve"
"""What to type where no daemon runs."""
UNREAD: Final = "decode: "
"""How the daemon's words begin on what it cannot read."""
OLDER: Final = "the daemon may be older than this command, and needs a restart"
SWITCHES: Final = {"embeddings": "embed", "reranking": "rerank"}
"""What may be turned off, to the key that does; capabilities are called the same."""


def add_socket_argument(parser: argparse.ArgumentParser) -> None:
    """Declare how a command finds the daemon."""
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where the daemon's sockets are"
    )


def add_id_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the id that requests are sent with."""
    parser.add_argument(
        "--id", default="cli", help='for inferd cancel (default "cli")', metavar="ID"
    )


def configured_directory() -> Path | None:
    """Find the sockets' directory in the configuration, if there is one."""
    config = load_config(None)
    return socket_directory(config) if config.listen.directory else None


@contextmanager
def asking(directory: Path | None, wanted: str) -> Iterator[Client]:
    """Give a client; what goes wrong with it is told in one line.

    Args:
        directory: from the command line; else as configured, else the usual ones.
        wanted: what the daemon has to serve, in a word.
    """
    directory = directory or configured_directory()
    try:
        with Client(directory) as client:
            yield client
    except NoDaemonError as error:
        raise _unserved(error, directory, wanted) from error
    except RequestFailedError as error:
        is_unread = error.frame.message.startswith(UNREAD)
        raise CommandError(str(error), hint=OLDER if is_unread else "") from error
    except ClientError as error:
        raise CommandError(str(error)) from error


def _unserved(
    error: NoDaemonError, directory: Path | None, wanted: str
) -> CommandError:
    """Tell no daemon from one that loads, and from one that serves something else."""
    switch = SWITCHES.get(wanted, "")
    status, is_able = _status(directory, switch)
    if status is None:
        return CommandError(str(error), hint=START)
    if status != READY:
        return CommandError(f"the daemon is {status}", hint="inferd status --watch")
    change = f"add a [[backend]] with a model for {wanted} to"
    if is_able:
        change = f"set listen.{switch} = true in"
    return CommandError(
        f"the daemon serves no {wanted}", hint=f"{change} its configuration"
    )


def _status(directory: Path | None, ability: str) -> tuple[str | None, bool]:
    """Ask a daemon how it is, and whether a backend of its has an ability.

    Who may not ask sees whether it serves anything.
    """
    is_able = False
    with suppress(NoDaemonError, ClientError, OSError):
        for line, status in watch_status(directory, timeout_s=ANSWER_S):
            if status.status != "capabilities":
                return status.status, is_able
            is_able |= bool(msgspec.json.decode(line).get(ability))
    for leaf in (INFER_SOCKET, INFER_V2_SOCKET, EMBED_SOCKET, RERANK_SOCKET):
        with suppress(NoDaemonError), connect(leaf, directory):
            return READY, False
    return None, False


def carry_out(order: Command, directory: Path | None) -> Reply:
    """Have the daemon carry out a command.

    Args:
        order: the command.
        directory: from the command line; else as configured, else the usual ones.

    Raises:
        CommandError: it did not, and why.
    """
    try:
        reply = command(order, directory or configured_directory(), timeout_s=ANSWER_S)
    except NoDaemonError as error:
        raise CommandError(str(error), hint=START) from error
    except TimeoutError as error:
        raise CommandError(f"no reply within {ANSWER_S:g} s") from error
    except (ClientError, OSError) as error:
        raise CommandError(str(error)) from error
    if not reply.ok:
        refusal = f"the daemon refused to {order.command}"
        raise CommandError(refusal if reply.error is UNSET else reply.error)
    return reply
