"""Open a model's files once, and check them before the library sees them.

The library opens a path. What it is given is the path of our own descriptor, so that it
reads what was checked, whatever the configured path names by then. A symlink is followed,
once: stores of models are full of them.
"""

import hashlib
import hmac
import os
import re
import stat
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from inferd.config import LlamaCppSettings
from inferd.worker.backend import LoadError
from inferd.worker.limits import MODEL_PARTS
from inferd.worker.llama.gguf import GgufError, Header, read_header

_HASH_BLOCK_BYTES: Final = 8 * 1024 * 1024
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe in place of a file is not waited for."""
_FIRST_PART: Final = re.compile(r"(?P<stem>.+)-00001-of-(?P<n_parts>\d{5})\.gguf")


class ModelFile:
    """A model's file, or the files that it was split into, open for reading.

    Args:
        path: of the file, or of the first one.

    Raises:
        LoadError: one is missing, cannot be read, or is no GGUF file that could be
            loaded.

    Ownership:
        Holds a descriptor for each file as long as it lives.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fds: list[int] = []
        weakref.finalize(self, _close_all, self.fds)
        self.header = self._add(path)
        for each in _other_parts(path, self.header.n_parts):
            self._add(each)
        self._opened = self._stamps()

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
            raise LoadError.of_file(self.path, "it changed while it was loaded")

    def _add(self, path: Path) -> Header:
        """Open a file, and see that it can be loaded."""
        fd = _opened(path)
        self.fds.append(fd)
        try:
            with open(fd, "rb", buffering=0, closefd=False) as file:
                return read_header(file, os.fstat(fd).st_size)
        except GgufError as error:
            raise LoadError.of_file(path, str(error)) from error
        except OSError as error:
            raise LoadError.of_file(path, str(error.strerror)) from error

    def _stamps(self) -> list[tuple[int, int]]:
        """Tell size and time of change, which nobody can set back."""
        stats = [os.fstat(fd) for fd in self.fds]
        return [(each.st_size, each.st_ctime_ns) for each in stats]


class Files(NamedTuple):
    """All that a backend reads."""

    model: ModelFile
    draft: ModelFile | None

    @property
    def fds(self) -> list[int]:
        """Their descriptors."""
        return [fd for each in self if each is not None for fd in each.fds]


def open_files(settings: LlamaCppSettings) -> Files:
    """Open what the settings name.

    Raises:
        LoadError: as ``ModelFile`` does.
    """
    draft = settings.draft_model
    return Files(
        ModelFile(Path(settings.model)), ModelFile(Path(draft)) if draft else None
    )


def check_sha256(file: ModelFile, expected: str, alive: Callable[[], None]) -> None:
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
            "model file: its SHA-256 is not the expected one",
            f"SHA-256 of {file.path} is {actual}, expected {expected}",
        )


def _sha256(file: ModelFile, alive: Callable[[], None]) -> str:
    if len(file.fds) > 1:
        raise LoadError.of_file(
            file.path,
            f"it is one of {len(file.fds)} parts, which one sha256 cannot verify; "
            "join them with llama-gguf-split --merge",
        )
    digest = hashlib.sha256()
    place = 0
    while block := os.pread(file.fds[0], _HASH_BLOCK_BYTES, place):
        digest.update(block)
        place += len(block)
        alive()
    return digest.hexdigest()


def _opened(path: Path) -> int:
    try:
        fd = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        raise _not_found(path) from None
    except OSError as error:
        raise LoadError.of_file(path, str(error.strerror)) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_found(path)
    return fd


def _not_found(path: Path) -> LoadError:
    return LoadError("model file not found", f"model file not found: {path}")


def _other_parts(path: Path, n_parts: int) -> list[Path]:
    """Name the files that belong to a first one, as those who split models do."""
    if n_parts <= 1:
        return []
    if n_parts > MODEL_PARTS:
        raise LoadError.of_file(path, f"{n_parts} parts, over {MODEL_PARTS}")
    named = _FIRST_PART.fullmatch(path.name)
    if named is None or int(named["n_parts"]) != n_parts:
        raise LoadError.of_file(
            path,
            f"it is one of {n_parts} parts, so the first one's name must end in "
            f"-00001-of-{n_parts:05}.gguf",
        )
    return [
        path.with_name(f"{named['stem']}-{number:05}-of-{n_parts:05}.gguf")
        for number in range(2, n_parts + 1)
    ]


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
