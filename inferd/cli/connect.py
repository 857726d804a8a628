"""Connect to the daemon, and explain why it cannot be reached."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET

from inferd.cli.console import CommandError
from inferd.cli.unreachable import connection_hint, refuse_stopped
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError, RequestFailedError
from inferd.client.sync import (
    READY,
    ExchangeBounds,
    FrameClient,
    command,
    connect,
    watch_status,
)
from inferd.config.kinds.registry import DEFAULT
from inferd.config.load import load_config, socket_directory
from inferd.config.settings import ConfigError
from inferd.errors import ErrorCode
from inferd.models.embedded import (
    CHAT,
    CHAT_DEFAULTS,
    EMBEDDED_MODELS,
    EMBEDDED_PREFIX,
)
from inferd.surfaces import SURFACES, Surface, inference_surfaces
from inferd.wire.commands import Command, Reply

ADMIN_TIMEOUT_S: Final = 5.0
"""Timeout of a reply on the admin socket, seconds."""
DECODE_ERROR_PREFIX: Final = "decode: "
"""Prefix of the daemon's message about a request that it cannot decode."""
NOT_STARTED: Final = "the daemon did not start: "
"""Prefix of the daemon's message about its failed start."""
DOCTOR_HINT: Final = (
    "inferd doctor; for the machine's service: sudo inferd doctor --system"
)
OLD_DAEMON_HINT: Final = (
    "the daemon may be older than this command, and needs a restart"
)


def add_socket_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the directory of the sockets."""
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="directory of the daemon's sockets",
    )


def add_id_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the id of the requests."""
    parser.add_argument(
        "--id",
        default="cli",
        metavar="ID",
        help='id of the request, which "inferd cancel" takes (default "cli")',
    )


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option for the model that must answer."""
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="name or alias of the backend that must answer, as inferd model list "
        "prints it (default: the first that can)",
    )


def configured_directory() -> Path | None:
    """Read the directory of the sockets from the configuration, if it sets one."""
    try:
        config = load_config(None)
    except ConfigError as error:
        raise CommandError(str(error)) from error
    return socket_directory(config) if config.listen.directory else None


@contextmanager
def open_client(
    directory: Path | None, wanted: str, surfaces: Sequence[Surface] = SURFACES
) -> Iterator[FrameClient]:
    """Yield a client, and turn its errors into ``CommandError``.

    Args:
        directory: from the command line; ``None`` for the configured or default ones.
        wanted: what the daemon must offer, such as ``embeddings``.
        surfaces: where the daemon may offer it.
    """
    directory = directory or configured_directory()
    try:
        with FrameClient(directory) as client:
            yield client
    except NoDaemonError as error:
        raise unserved(error, directory, wanted, surfaces) from error
    except RequestFailedError as error:
        raise CommandError(str(error), hint=hint_for(error)) from error
    except ClientError as error:
        raise CommandError(str(error)) from error


def hint_for(error: RequestFailedError) -> str:
    """Return what to do about a refused request; empty if its message says it."""
    if error.frame.message.startswith(DECODE_ERROR_PREFIX):
        return OLD_DAEMON_HINT
    if error.code == ErrorCode.MODEL_NOT_FOUND:
        return "inferd model list"
    if error.frame.message.startswith(NOT_STARTED):
        return DOCTOR_HINT
    return ""


def unserved(
    error: NoDaemonError,
    directory: Path | None,
    wanted: str,
    surfaces: Sequence[Surface],
) -> CommandError:
    """Distinguish no daemon, a loading one, and one that lacks the service.

    Args:
        error: nothing answered.
        directory: of the sockets; ``None`` for the default ones.
        wanted: what the daemon must offer, such as ``embeddings``.
        surfaces: where the daemon may offer it.
    """
    key = next((each.name for each in surfaces if each.offers == wanted), "")
    status, is_supported = _status(directory, key, surfaces)
    if status is None:
        return CommandError(str(error), hint=connection_hint(error))
    if status != READY:
        return CommandError(f"the daemon is {status}", hint="inferd status --watch")
    change = f"add a [[backend]] with a model for {wanted} to"
    if is_supported:
        change = f"set listen.{key} = true in"
    return CommandError(
        f"the daemon serves no {wanted}", hint=f"{change} its configuration"
    )


def _status(
    directory: Path | None, capability: str, surfaces: Sequence[Surface]
) -> tuple[str | None, bool]:
    """Ask a daemon for its status, and whether one of its backends has a capability.

    Without access to the admin socket, try to connect to the inference sockets.
    """
    is_supported = False
    with suppress(NoDaemonError, ClientError, OSError):
        for line, status in watch_status(
            directory, bounds=ExchangeBounds(ADMIN_TIMEOUT_S)
        ):
            if status.status != "capabilities":
                return status.status, is_supported
            is_supported |= bool(msgspec.json.decode(line).get(capability))
    for surface in inference_surfaces(surfaces):
        with suppress(NoDaemonError), connect(surface.socket, directory):
            return READY, False
    return None, False


def serves_sample(directory: Path | None) -> bool:
    """Tell whether the embedded chat model is the only one that generates.

    The daemon reports its models on the admin socket. Where the user has no access to that
    socket, the configuration decides; with a directory from the command line the answer is
    no then, as the configuration may be that of another daemon.
    """
    models: list[object] = []
    with suppress(NoDaemonError, ClientError, OSError):
        for line, status in watch_status(
            directory or configured_directory(),
            bounds=ExchangeBounds(ADMIN_TIMEOUT_S),
        ):
            if status.status != "capabilities":
                return set(models) == {CHAT_DEFAULTS.model}
            frame = msgspec.json.decode(line)
            models += [frame.get("model")] if frame.get("generate", True) else []
    return directory is None and _configures_sample()


def _configures_sample() -> bool:
    try:
        backends = load_config(None).backend
    except ConfigError:
        return False
    chat = EMBEDDED_PREFIX + CHAT.name
    models = [each.model for each in backends if isinstance(each, DEFAULT.settings)]
    return chat in models and set(models) <= {
        EMBEDDED_PREFIX + name for name in EMBEDDED_MODELS
    }


def send_command(
    order: Command, directory: Path | None, *, timeout_s: float | None = None
) -> Reply:
    """Send a command to the admin socket and return the reply.

    Args:
        order: the command.
        directory: from the command line; ``None`` for the configured or default ones.
        timeout_s: seconds that the reply may take; by default ``ADMIN_TIMEOUT_S``.

    Raises:
        CommandError: the daemon did not reply, refused, or is a service that is stopped.
    """
    timeout_s = timeout_s or ADMIN_TIMEOUT_S
    directory = directory or configured_directory()
    refuse_stopped(directory)
    try:
        reply = command(order, directory, timeout_s=timeout_s)
    except NoDaemonError as error:
        raise CommandError(str(error), hint=connection_hint(error)) from error
    except TimeoutError as error:
        raise CommandError(f"no reply within {timeout_s:g} s") from error
    except (ClientError, OSError) as error:
        raise CommandError(str(error)) from error
    if not reply.ok:
        refusal = f"the daemon refused to {order.command}"
        raise CommandError(refusal if reply.error is UNSET else reply.error)
    return reply
