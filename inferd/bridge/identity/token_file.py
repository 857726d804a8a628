"""The file of tokens: their hashes, for the bridge's own user alone."""

import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from inferd.bridge.identity.token import TokenRecord, by_id
from inferd.limits.bridge import MAX_TOKENS, TOKEN_FILE_BYTES
from inferd.paths import config_files
from inferd.trusted_path import UntrustedError, open_directory, open_regular_file
from inferd.wire.codec import DECODE_FAILURES

FILE_NAME: Final = "bridge-tokens.json"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class TokenFileError(Exception):
    """The file of tokens cannot be used; one line."""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    tokens: Annotated[tuple[TokenRecord, ...], Meta(max_length=MAX_TOKENS)] = ()


_DECODER: Final = msgspec.json.Decoder(_File)


def default_path() -> Path:
    """Return the path of the file if none is configured."""
    return config_files()[0].with_name(FILE_NAME)


def read_tokens(path: Path) -> tuple[TokenRecord, ...]:
    """Read the tokens; none if there is no file.

    Raises:
        TokenFileError: it cannot be read, or others than its owner may read it.
    """
    try:
        with os.fdopen(open_regular_file(path), "rb") as file:
            _check(path, os.fstat(file.fileno()))
            data = file.read(TOKEN_FILE_BYTES + 1)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise TokenFileError(f"{path}: {error.strerror}") from error
    if len(data) > TOKEN_FILE_BYTES:
        raise TokenFileError(f"{path}: over {TOKEN_FILE_BYTES} bytes")
    try:
        return _DECODER.decode(data).tokens
    except DECODE_FAILURES as error:
        raise TokenFileError(f"{path}: {error}") from error


def _check(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise TokenFileError(f"{path}: belongs to uid {status.st_uid}")
    if status.st_mode & _OTHERS:
        raise TokenFileError(f"{path}: others may access it; chmod 600 {path}")


@contextmanager
def changing_tokens(path: Path) -> Iterator[list[TokenRecord]]:
    """Yield the tokens to change; they are written on leaving, if nothing was raised.

    Raises:
        TokenFileError: the file cannot be read or written, or has too many tokens.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = open_directory(path.parent)
    except (OSError, UntrustedError) as error:
        raise TokenFileError(f"{path.parent}: {error}") from error
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        tokens = [*read_tokens(path)]
        yield tokens
        if len(tokens) > MAX_TOKENS:
            raise TokenFileError(f"at most {MAX_TOKENS} tokens are allowed")
        _write(directory, path.name, tokens)
    except OSError as error:
        raise TokenFileError(f"{path}: {error.strerror}") from error
    finally:
        os.close(directory)


def _write(directory: int, name: str, tokens: Sequence[TokenRecord]) -> None:
    data = msgspec.json.format(msgspec.json.encode(_File(tuple(tokens)))) + b"\n"
    scratch = f"{name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(scratch, flags, 0o600, dir_fd=directory)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    os.replace(scratch, name, src_dir_fd=directory, dst_dir_fd=directory)


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
