"""Members of a package's archive, of which nothing is believed."""

import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final

from inferd.limits.models import (
    BLOB_BLOCK_BYTES,
    PACKAGE_ENTRY_MAX_CHARS,
    PACKAGE_MAX_BYTES,
    PACKAGE_MAX_ENTRIES,
    PACKAGE_MAX_MEMBERS,
    PACKAGE_MAX_RATIO,
)

_ENCRYPTED: Final = 1
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNIX_MODE: Final = 16
"""Bits to shift the attributes of an entry by, for its mode."""
_SHOWN: Final = 5
"""Entries that an error lists."""


_DAMAGED: Final = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError),
    *(OverflowError, NotImplementedError, RuntimeError),
)
"""What the reader of archives raises for those that are damaged."""


class ArchiveError(Exception):
    """An archive cannot be used; the message is one line."""


class Archive:
    """An open archive of a package, whose members are read in a given order.

    Args:
        file: of the package, a wheel.

    Raises:
        ArchiveError: it is no archive, or has too many entries.
    """

    def __init__(self, file: BinaryIO) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except _DAMAGED as error:
            raise ArchiveError(f"it is not an archive of a package: {error}") from error
        self._entries = self._zip.infolist()
        self._n_bytes = file.seek(0, 2)
        if len(self._entries) > PACKAGE_MAX_ENTRIES:
            raise ArchiveError(
                f"it has {len(self._entries)} entries; allowed: {PACKAGE_MAX_ENTRIES}"
            )

    def read(self, pattern: str) -> Iterator[bytes]:
        """Read the members that fit a pattern, one after another, in natural order.

        Args:
            pattern: a path, in which ``*`` stands for any characters.

        Raises:
            ArchiveError: there is none, or one is not what it should be.
        """
        entries = self._fitting(pattern)
        for entry in entries:
            _check(entry)
        if sum(entry.compress_size for entry in entries) > self._n_bytes:
            raise ArchiveError(f"members of {pattern} overlap each other")
        for entry in entries:
            yield from self._content(entry)

    def _fitting(self, pattern: str) -> list[zipfile.ZipInfo]:
        expression = re.compile(".*".join(map(re.escape, pattern.split("*"))))
        found = [
            entry
            for entry in self._entries
            if expression.fullmatch(entry.filename) and not entry.is_dir()
        ]
        if not found:
            names = [entry.filename for entry in self._entries if not entry.is_dir()]
            shown = ", ".join(name[:PACKAGE_ENTRY_MAX_CHARS] for name in names[:_SHOWN])
            more = ", …" if len(names) > _SHOWN else ""
            raise ArchiveError(f"it has no {pattern}; it has: {shown}{more}")
        if len(found) > PACKAGE_MAX_MEMBERS:
            raise ArchiveError(
                f"{len(found)} members fit {pattern}; allowed: {PACKAGE_MAX_MEMBERS}"
            )
        if len({entry.filename for entry in found}) < len(found):
            raise ArchiveError(f"it has {found[0].filename} more than once")
        return sorted(found, key=lambda entry: _natural(entry.filename))

    def _content(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        n_bytes, most = 0, PACKAGE_MAX_RATIO * max(1, entry.compress_size)
        try:
            with self._zip.open(entry) as member:
                while block := member.read(BLOB_BLOCK_BYTES):
                    n_bytes += len(block)
                    if n_bytes > PACKAGE_MAX_BYTES:
                        raise ArchiveError(
                            f"{entry.filename} has over {PACKAGE_MAX_BYTES} bytes"
                        )
                    if n_bytes > most + BLOB_BLOCK_BYTES:
                        raise ArchiveError(
                            f"{entry.filename} has over {PACKAGE_MAX_RATIO} times the "
                            "bytes that it takes in the archive"
                        )
                    yield block
        except _DAMAGED as error:
            raise ArchiveError(f"{entry.filename} is damaged: {error}") from error
        if n_bytes != entry.file_size:
            raise ArchiveError(f"{entry.filename} ends after {n_bytes} bytes")


def _check(entry: zipfile.ZipInfo) -> None:
    """Refuse a member that is not a plain file with a plain path.

    Raises:
        ArchiveError: it is not.
    """
    name, mode = entry.filename, entry.external_attr >> _UNIX_MODE
    parts = name.split("/")
    if (
        len(name) > PACKAGE_ENTRY_MAX_CHARS
        or "\\" in name
        or {"", ".", ".."} & {*parts}
    ):
        raise ArchiveError(f"{name!r:.200} is not the path of a member")
    if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
        raise ArchiveError(f"{name} is not a regular file")
    if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
        raise ArchiveError(f"{name} is encrypted, or compressed in an unusual way")
    if entry.file_size > PACKAGE_MAX_BYTES:
        raise ArchiveError(
            f"{name} has {entry.file_size} bytes; allowed: {PACKAGE_MAX_BYTES}"
        )


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which part 2 comes before part 10."""
    return [
        (int(word), "") if word.isascii() and word.isdecimal() else (-1, word)
        for word in re.split(r"([0-9]+)", name)
    ]
