"""The file of tokens: their hashes, for the bridge's own user alone.

That of the machine's bridge is root's, and the bridge's group may read it: who takes over the
bridge adds no token.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from inferd.bridge.identity.token import TokenRecord, by_id
from inferd.limits.bridge import MAX_TOKENS, TOKEN_FILE_BYTES
from inferd.paths import config_files
from inferd.service.private_file import (
    PrivateFileError,
    read_private,
    replace_private,
)
from inferd.trusted_path import UntrustedError, open_directory
from inferd.wire.codec import DECODE_FAILURES

FILE_NAME: Final = "bridge-tokens.json"
SYSTEM_TOKENS: Final = Path("/etc/inferd") / FILE_NAME
"""Of the machine's bridge."""
BRIDGE_GROUP: Final = "inferd-bridge"
"""Of the machine's bridge, and the name of its user."""


class TokenFileError(Exception):
    """The file of tokens cannot be used; one line."""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    tokens: Annotated[tuple[TokenRecord, ...], Meta(max_length=MAX_TOKENS)] = ()


_DECODER: Final = msgspec.json.Decoder(_File)


def default_path() -> Path:
    """Return the path of the file if none is configured.

    It is ``$INFERD_BRIDGE_TOKENS``, which the unit of the machine's bridge sets, or beside this
    user's configuration.
    """
    given = os.environ.get("INFERD_BRIDGE_TOKENS")
    return Path(given) if given else config_files()[0].with_name(FILE_NAME)


def read_tokens(path: Path) -> tuple[TokenRecord, ...]:
    """Read the tokens; none if there is no file.

    Raises:
        TokenFileError: it cannot be read, or others than its readers may read it.
    """
    try:
        data = read_private(path, TOKEN_FILE_BYTES)
    except PrivateFileError as error:
        raise TokenFileError(str(error)) from error
    if data is None:
        return ()
    try:
        return _DECODER.decode(data).tokens
    except DECODE_FAILURES as error:
        raise TokenFileError(f"{path}: {error}") from error


@contextmanager
def changing_tokens(
    path: Path, *, reader_gid: int | None = None
) -> Iterator[list[TokenRecord]]:
    """Yield the tokens to change; they are written on leaving, if nothing was raised.

    Args:
        path: of the file.
        reader_gid: a group that may read it: that of the service, whose file is root's.

    Raises:
        TokenFileError: the file cannot be read or written, or has too many tokens.
    """
    mode = 0o700 if reader_gid is None else 0o755
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=mode)
        directory = open_directory(path.parent)
    except (OSError, UntrustedError) as error:
        raise TokenFileError(f"{path.parent}: {error}") from error
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        tokens = [*read_tokens(path)]
        yield tokens
        if len(tokens) > MAX_TOKENS:
            raise TokenFileError(f"at most {MAX_TOKENS} tokens are allowed")
        data = msgspec.json.format(msgspec.json.encode(_File(tuple(tokens)))) + b"\n"
        replace_private(directory, path.name, data, reader_gid=reader_gid)
    except OSError as error:
        raise TokenFileError(f"{path}: {error.strerror}") from error
    finally:
        os.close(directory)


class ApiTokens:
    """The tokens of a file, read again when it has changed.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, ...] | None = None
        self._records: dict[str, TokenRecord] = {}

    def records(self) -> dict[str, TokenRecord]:
        """Return the tokens by their ids.

        Raises:
            TokenFileError: the file cannot be used; then no token is valid.
        """
        version = self._version_now()
        if version != self._version:
            self._records = {}
            self._version = None
            self._records = by_id(read_tokens(self._path))
            self._version = version
        return self._records

    def _version_now(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise TokenFileError(f"{self._path}: {error.strerror}") from error
        return (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)
