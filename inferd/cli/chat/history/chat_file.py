"""The file of one chat, which is written to while its chat goes on."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from inferd.chats.records import KeptChat
from inferd.cli.chat.conversation import Conversation
from inferd.cli.chat.history.lines import (
    HistoryLine,
    encode_line,
    replay,
    whole_lines,
)
from inferd.cli.console import CommandError

FILE_MODE: Final = 0o600
MAX_CHAT_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the file of one chat: some thousand long answers. A longer one is not written to; its
user is told to begin another chat."""
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class ChatFile:
    """A file that lines are added to.

    A line is with the kernel once it is written, so that the end of this process, by whatever
    signal, loses none. ``keep`` also waits until the disk has it.

    Ownership: one process has it open for writing; ``close`` it.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._n_bytes = os.fstat(fd).st_size

    @classmethod
    def create(cls, path: Path, chat: KeptChat) -> "ChatFile":
        """Create the file of a new chat, which it begins with."""
        fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        made = cls(path, fd)
        made.keep(HistoryLine(chat=chat))
        return made

    @classmethod
    def open(cls, path: Path) -> "tuple[ChatFile, Conversation]":
        """Open the file of a chat; drop a last line that was cut.

        Raises:
            CommandError: another session has it open, or there is no chat in it.
        """
        try:
            fd = os.open(path, _FLAGS)
        except FileNotFoundError as error:
            raise CommandError("the chat has been deleted") from error
        try:
            return cls._opened(path, fd)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def _opened(cls, path: Path, fd: int) -> "tuple[ChatFile, Conversation]":
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CommandError("the chat is open in another session") from error
        data = read_all(fd)
        if (conversation := replay(data)) is None:
            raise CommandError(f"{path.name}: there is no chat in it")
        os.ftruncate(fd, whole_lines(data))
        return cls(path, fd), conversation

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)

    def keep(self, line: HistoryLine) -> None:
        """Add a line, and wait until the disk has it.

        Raises:
            CommandError: it cannot be written.
        """
        self.add(line)
        with suppress(OSError):  # as of a file system that has no such thing
            os.fsync(self._fd)

    def add(self, line: HistoryLine) -> None:
        """Add a line.

        Raises:
            CommandError: it cannot be written.
        """
        data = encode_line(line)
        if self._n_bytes + len(data) > MAX_CHAT_BYTES:
            raise CommandError(
                f"the chat has reached {MAX_CHAT_BYTES:,} bytes, the most that are kept"
            )
        try:
            n_written = os.write(self._fd, data)
            if n_written < len(data):
                os.ftruncate(self._fd, self._n_bytes)
                raise CommandError(f"{self.path}: the disk is full")
        except OSError as error:
            raise CommandError(f"{self.path}: {error.strerror}") from error
        self._n_bytes += len(data)


def read_all(fd: int) -> bytes:
    """Read a file from its beginning, as far as one may be long."""
    parts: list[bytes] = []
    at = 0
    while at < MAX_CHAT_BYTES:
        part = os.pread(fd, MAX_CHAT_BYTES - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)
