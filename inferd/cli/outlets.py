"""Where transcripts go: to stdout as they come, or whole into files."""

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferd.cli.console import CommandError
from inferd.cli.recordings import STDIN
from inferd.client.transcripts import (
    FORMATS,
    PROSE,
    Format,
    Segment,
    Transcript,
    has_text,
)
from inferd.terminal import json_line, prose

STDIN_STEM: Final = "stdin"
"""What files are called that hold what was said on stdin."""
_JOINABLE: Final = ("txt", "json")
"""Formats of which several may stand in one file."""


def kinds_of(text: str) -> list[str]:
    """Read formats from the command line, as they stand there.

    Raises:
        ArgumentTypeError: one is none.
    """
    kinds = list(dict.fromkeys(text.split(",")))
    for kind in kinds:
        if kind not in FORMATS:
            raise argparse.ArgumentTypeError(
                f"{kind!r} is none of {', '.join(FORMATS)}"
            )
    return kinds


@dataclass(frozen=True)
class Destination:
    """What is written, and where."""

    kinds: Sequence[str]
    directory: Path | None
    """None: to stdout."""
    has_words: bool
    """Whether segments are words, which stand in one line of text."""

    def check(self, names: Sequence[str]) -> None:
        """Refuse what would be written over one another, or over what is heard.

        Raises:
            CommandError: it would.
        """
        stems = [_stem(name) for name in names]
        if self.directory is None:
            if len(self.kinds) > 1:
                raise CommandError("several formats need --output DIR")
            if len(names) > 1 and self.kinds[0] not in _JOINABLE:
                raise CommandError(
                    f"{self.kinds[0]} of several files needs --output DIR"
                )
        elif twice := {stem for stem in stems if stems.count(stem) > 1}:
            raise CommandError(f"two files would be written to {min(twice)}.*")
        heard = {os.path.realpath(name) for name in names}
        for path in self._paths(names):
            if os.path.realpath(path) in heard:
                raise CommandError(f"{path} would be written over")

    def _paths(self, names: Sequence[str]) -> list[Path]:
        if self.directory is None:
            return []
        return [
            self.directory / f"{_stem(name)}.{kind}"
            for name in names
            for kind in self.kinds
        ]

    def make_directory(self) -> None:
        """Have a place for files: before hours of sound are heard for them.

        Raises:
            CommandError: there is none, or nothing may be written there.
        """
        if self.directory is None:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise CommandError(f"{self.directory}: Not a directory") from error
        except OSError as error:
            raise CommandError(f"{self.directory}: {error.strerror}") from error
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise CommandError(f"{self.directory}: Permission denied")

    def format_of(self, kind: str) -> Format:
        """Find out how to write."""
        return PROSE if kind == "txt" and self.has_words else FORMATS[kind]

    def keep(self, name: str, transcript: Transcript) -> None:
        """Write a transcript into files, if that is where it goes.

        Each is whole, or as it was before.

        Raises:
            CommandError: one cannot be written.
        """
        if self.directory is None:
            return
        for kind, path in zip(self.kinds, self._paths([name]), strict=True):
            text = self.format_of(kind).whole(name, transcript)
            part = self.directory / f".inferd-{os.getpid()}.part"
            try:
                part.write_text(text, encoding="utf-8", newline="\n")
                part.replace(path)
            except OSError as error:
                raise CommandError(f"{path}: {error.strerror}") from error
            finally:
                with suppress(OSError):
                    part.unlink(missing_ok=True)


class Printer:
    """Prints one transcript segment after segment, if stdout is where it goes."""

    def __init__(self, name: str, destination: Destination) -> None:
        self._name = name
        self._form = Format()
        if destination.directory is None:
            self._form = destination.format_of(destination.kinds[0])
        self._n_cues = 0

    @property
    def ends_lines(self) -> bool:
        """Whether what it prints ends in a line's end each time."""
        return self._form is not PROSE

    def take(self, segment: Segment) -> None:
        """Print a segment, if it has text."""
        if has_text(segment):
            head = "" if self._n_cues else self._form.head
            self._n_cues += 1
            self._print(head + self._form.cue(self._n_cues, segment))

    def finish(self, transcript: Transcript) -> None:
        """Print what comes last."""
        head = "" if self._n_cues else self._form.head
        self._print(head + self._form.tail(self._name, transcript))

    def _print(self, text: str) -> None:
        if self._form is FORMATS["json"] and text:
            json_line(text)
        elif text:
            prose(text)


def _stem(name: str) -> str:
    return STDIN_STEM if name == STDIN else Path(name).stem
