"""Files that are opened once, and checked before a library sees them.

The library opens a path. What it is given is the path of our own descriptor, so that it
reads what was checked, whatever the configured path names by then. A symlink is followed,
once: stores of models are full of them.
"""

import hashlib
import hmac
import os
import stat
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from inferd.worker.backend import LoadError

_HASH_BLOCK_BYTES: Final = 8 * 1024 * 1024
MODEL: Final = "model file"
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe in place of a file is not waited for."""


class _Format(NamedTuple):
    name: str
    kind: str
    """Of the backend that reads it, as configurations say it."""


_FORMATS: Final = {
    b"GGUF": _Format("GGUF", "llamacpp"),
    b"lmgg": _Format("whisper.cpp model", "whispercpp"),
}
"""By what files begin with."""


def another_format(expected: bytes, found: bytes) -> str:
    """Say that a file does not begin as it should, and what would read it.

    Args:
        expected: what files begin with that are as they should be.
        found: what this one begins with.
    """
    fault = f"not a {_FORMATS[expected].name} file"
    if other := _FORMATS.get(found):
        fault += f' but a {other.name} file, for kind = "{other.kind}"'
    return fault


class OpenedFile:
    """A file, or the files that it was split into, open for reading.

    Args:
        path: of the file, or of the first one; nothing is open yet.
        kind: how messages call it.

    Ownership:
        Holds a descriptor for each file as long as it lives.
    """

    def __init__(self, path: Path, kind: str = MODEL) -> None:
        self.path = path
        self.kind = kind
        self.fds: list[int] = []
        weakref.finalize(self, _close_all, self.fds)
        self._opened: list[tuple[int, int]] = []

    @property
    def library_paths(self) -> list[bytes]:
        """What the library is to open."""
        return [b"/proc/self/fd/%d" % fd for fd in self.fds]

    def refuse_changed(self) -> None:
        """Refuse a file that anybody has written to since it was opened.

        Raises:
            LoadError: somebody has.
        """
        if self._stamps() != self._opened:
            raise self.refusal("it changed while it was loaded")

    def refusal(self, fault: str) -> LoadError:
        """Say what is wrong with it."""
        return LoadError.of_file(self.path, fault, kind=self.kind)

    def _open(self, path: Path) -> int:
        """Open one of the files; give its descriptor, which is ours."""
        fd = _opened(path, self.kind)
        self.fds.append(fd)
        return fd

    def _note_opened(self) -> None:
        """Take all files to be what they should be from here on."""
        self._opened = self._stamps()

    def _stamps(self) -> list[tuple[int, int]]:
        """Tell size and time of change, which nobody can set back."""
        stats = [os.fstat(fd) for fd in self.fds]
        return [(each.st_size, each.st_ctime_ns) for each in stats]


def check_sha256(file: OpenedFile, expected: str, alive: Callable[[], None]) -> None:
    """Compare a file's SHA-256, in constant time, with what it must be.

    Args:
        file: the file, not one of several.
        expected: 64 lowercase hex digits.
        alive: called after each block, as a sign of life.

    Raises:
        LoadError: it is another, or the file changed meanwhile.
    """
    actual = _sha256(file, alive)
    file.refuse_changed()
    if not hmac.compare_digest(actual, expected):
        raise LoadError(
            f"{file.kind}: its SHA-256 is not the expected one",
            f"SHA-256 of {file.path} is {actual}, expected {expected}",
        )


def _sha256(file: OpenedFile, alive: Callable[[], None]) -> str:
    if len(file.fds) > 1:
        raise file.refusal(
            f"it is one of {len(file.fds)} parts, which one sha256 cannot verify; "
            "join them with llama-gguf-split --merge"
        )
    digest = hashlib.sha256()
    place = 0
    while block := os.pread(file.fds[0], _HASH_BLOCK_BYTES, place):
        digest.update(block)
        place += len(block)
        alive()
    return digest.hexdigest()


def _opened(path: Path, kind: str) -> int:
    try:
        fd = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        raise _not_found(path, kind) from None
    except OSError as error:
        raise LoadError.of_file(path, str(error.strerror), kind=kind) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_found(path, kind)
    return fd


def _not_found(path: Path, kind: str) -> LoadError:
    return LoadError(f"{kind} not found", f"{kind} not found: {path}")


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
