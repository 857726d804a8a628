"""What was typed, for the line editor: lines of JSON, the newest last."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from prompt_toolkit.history import History

from inferd.cli.chat.commands.parsing import MARK
from inferd.cli.chat.history.chat_file import FILE_MODE
from inferd.terminal import json_safe

MAX_PROMPTS: Final = 1000
"""Prompts that are kept."""
MAX_PROMPT_BYTES: Final = 64 * 1024
"""Bytes of one that is kept: a longer one is a paste, which its chat has."""
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the file; over it, only the newer half of the prompts stays."""


class PromptHistory(History):
    """The prompts of all sessions, in a file that only its user may read.

    A file that cannot be read or written is left alone: prompts are a convenience.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the prompts, the newest first."""
        return [*reversed(self._read())]

    def store_string(self, string: str) -> None:
        """Add a prompt; commands are remembered in this session alone."""
        if string.startswith(MARK) and not string.startswith(MARK * 2):
            return
        line = msgspec.json.encode(json_safe(string)) + b"\n"
        if len(line) <= MAX_PROMPT_BYTES:
            self._append(line)

    def forget(self, texts: Sequence[str]) -> None:
        """Remove prompts from the file and from memory.

        Args:
            texts: of a chat that is deleted; what was typed may be the end of one.
        """

        def is_kept(prompt: str) -> bool:
            said = prompt.removeprefix(MARK) if prompt.startswith(MARK * 2) else prompt
            return not any(text == said or text.endswith(f"\n{said}") for text in texts)

        self._write([*filter(is_kept, self._read())])
        self._loaded_strings = [*filter(is_kept, self._loaded_strings)]

    def _read(self) -> list[str]:
        try:
            data = self._path.read_bytes()
        except OSError:
            return []
        found: list[str] = []
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            try:
                found.append(msgspec.json.decode(line, type=str))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
        return found[-MAX_PROMPTS:]

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(self._path, flags, FILE_MODE)
        except OSError:
            return
        try:
            os.write(fd, line)
            n_bytes = os.fstat(fd).st_size
        except OSError:
            n_bytes = 0
        finally:
            os.close(fd)
        if n_bytes > MAX_FILE_BYTES:
            known = self._read()
            self._write(known[len(known) // 2 :])

    def _write(self, prompts: Sequence[str]) -> None:
        """Replace the file."""
        new = self._path.with_suffix(".new")
        try:
            new.unlink(missing_ok=True)
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
            with os.fdopen(fd, "wb") as file:
                file.writelines(msgspec.json.encode(each) + b"\n" for each in prompts)
            new.replace(self._path)
        except OSError:
            return
