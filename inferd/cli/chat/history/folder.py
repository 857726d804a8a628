"""All chats of a user: listed, searched, removed, and how many there may be."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferd.chats.records import KeptChat, KeptMessage
from inferd.cli.chat.conversation import Conversation
from inferd.cli.chat.history.chat_file import ChatFile, read_all
from inferd.cli.chat.history.lines import latest_chat, replay
from inferd.cli.console import CommandError
from inferd.paths import state_directory
from inferd.trusted_path import UntrustedError, open_directory

MAX_CHATS: Final = 500
"""Chats that are kept: with a new one the oldest goes, which its user is told."""
MAX_CHATS_BYTES: Final = 512 * 1024 * 1024
"""Bytes of all chats, for the same."""
MAX_HITS: Final = 20
"""Messages that a search shows."""
_FOLDER_MODE: Final = 0o700
_SUFFIX: Final = ".jsonl"


@dataclass(frozen=True)
class FoundMessage:
    """A message that has the words of a search."""

    chat: KeptChat
    message: KeptMessage


class ChatFolder:
    """The directory of the chats of a user.

    Args:
        path: of it; it is created, for its user alone.

    Raises:
        CommandError: others may write there, or it cannot be created.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_directory() / "chats"
        try:
            os.close(open_directory(self.path.parent, makes=True))
            self.path.mkdir(_FOLDER_MODE, exist_ok=True)
            os.close(open_directory(self.path))
            self.path.chmod(_FOLDER_MODE)
        except (UntrustedError, OSError) as error:
            raise CommandError(f"chats cannot be kept: {error}") from error

    def create(self, chat: KeptChat) -> tuple[ChatFile, int]:
        """Create the file of a new chat; return how many old chats have gone for it."""
        n_removed = self._make_room()
        return ChatFile.create(self._path(chat.id), chat), n_removed

    def open(self, chat_id: str) -> tuple[ChatFile, Conversation]:
        """Open a chat, to go on with it.

        Raises:
            CommandError: it is not there, damaged, or open in another session.
        """
        return ChatFile.open(self._path(chat_id))

    def chats(self) -> Sequence[KeptChat]:
        """List the chats, the one that was changed last first."""
        found = [chat for path in self._files() if (chat := _read_chat(path))]
        return sorted(found, key=lambda chat: chat.modified_us, reverse=True)

    def delete(self, chat_id: str) -> None:
        """Delete a chat; nothing of it stays in the directory."""
        self._path(chat_id).unlink(missing_ok=True)
        self._settle()

    def search(self, query: str) -> Sequence[FoundMessage]:
        """Find the newest messages that have all words of a query, at most ``MAX_HITS``."""
        words = query.casefold().split()
        hits: list[FoundMessage] = []
        for chat in self.chats():
            hits += _hits(self._path(chat.id), words) if words else []
            if len(hits) >= MAX_HITS:
                break
        return hits[:MAX_HITS]

    def _path(self, chat_id: str) -> Path:
        return self.path / f"{chat_id}{_SUFFIX}"

    def _files(self) -> Sequence[Path]:
        return [*self.path.glob(f"*{_SUFFIX}")]

    def _settle(self) -> None:
        """Wait until the disk knows what has been removed."""
        with suppress(OSError), _opened(self.path, os.O_DIRECTORY) as fd:
            os.fsync(fd)

    def _make_room(self) -> int:
        """Remove the oldest chats where there are too many; none that is open."""
        known = []
        for path in self._files():
            with suppress(OSError):
                status = path.stat()
                known.append((status.st_mtime_ns, status.st_size, path))
        known.sort()
        n_bytes, n_removed = sum(size for _, size, _ in known), 0
        for _, size, path in known:
            n_left = len(known) - n_removed
            if n_left < MAX_CHATS and n_bytes < MAX_CHATS_BYTES:
                break
            if not _is_open(path):
                path.unlink(missing_ok=True)
                n_bytes, n_removed = n_bytes - size, n_removed + 1
        return n_removed


def _read_chat(path: Path) -> KeptChat | None:
    with suppress(OSError), _opened(path) as fd:
        chat = latest_chat(read_all(fd))
        return chat if chat and f"{chat.id}{_SUFFIX}" == path.name else None
    return None


def _hits(path: Path, words: Sequence[str]) -> Sequence[FoundMessage]:
    with suppress(OSError), _opened(path) as fd:
        if (found := replay(read_all(fd))) is not None:
            return [
                FoundMessage(found.chat, message)
                for message in reversed(found.messages.values())
                if all(word in message.text.casefold() for word in words)
            ]
    return []


def _is_open(path: Path) -> bool:
    """Tell whether a session writes to a file."""
    try:
        with _opened(path) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


@contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    try:
        yield fd
    finally:
        os.close(fd)
