"""Write transcripts: to stdout segment by segment, or whole into files."""

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferd.cli.console import CommandError
from inferd.cli.transcription.recording import STDIN
from inferd.client.transcripts import (
    FORMATS,
    RUNNING_TEXT,
    Transcript,
    TranscriptFormat,
    TranscriptSegment,
    has_text,
)
from inferd.terminal import json_safe, print_json, print_text

STDIN_STEM: Final = "stdin"
"""File name, without its extension, of the transcript of stdin."""
_JOINABLE: Final = ("txt", "json")
"""Formats of which several transcripts may stand in one stream."""


def parse_formats(text: str) -> list[str]:
    """Parse a comma-separated list of formats; an argparse type.

    Raises:
        ArgumentTypeError: a format is unknown.
    """
    kinds = list(dict.fromkeys(text.split(",")))
    for kind in kinds:
        if kind not in FORMATS:
            raise argparse.ArgumentTypeError(
                f"{kind!r} is not one of {', '.join(FORMATS)}"
            )
    return kinds


@dataclass(frozen=True)
class Destination:
    """Formats and directory of the transcripts."""

    kinds: Sequence[str]
    directory: Path | None
    """``None`` for stdout."""
    has_words: bool
    """Whether segments are words, which are joined into one line of text."""

    def check(self, names: Sequence[str]) -> None:
        """Check that no output would overwrite another output or an input.

        Raises:
            CommandError: one would.
        """
        stems = [_stem(name) for name in names]
        if self.directory is None:
            if len(self.kinds) > 1:
                raise CommandError("several formats need --output DIR")
            if len(names) > 1 and self.kinds[0] not in _JOINABLE:
                raise CommandError(
                    f"{self.kinds[0]} of several files needs --output DIR"
                )
        elif duplicates := {stem for stem in stems if stems.count(stem) > 1}:
            raise CommandError(
                f"two transcripts would be written to {min(duplicates)}.*"
            )
        inputs = {os.path.realpath(name) for name in names}
        for path in self._paths(names):
            if os.path.realpath(path) in inputs:
                raise CommandError(f"{path} is an input, and would be overwritten")

    def _paths(self, names: Sequence[str]) -> list[Path]:
        if self.directory is None:
            return []
        return [
            self.directory / f"{_stem(name)}.{kind}"
            for name in names
            for kind in self.kinds
        ]

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the names whose transcripts are not all there.

        Raises:
            CommandError: transcripts go to stdout.
        """
        if self.directory is None:
            raise CommandError("--resume needs --output DIR, which has what is done")
        return [
            name
            for name in names
            if not all(path.exists() for path in self._paths([name]))
        ]

    def make_directory(self) -> None:
        """Create the output directory, before hours of audio are transcribed.

        Raises:
            CommandError: it cannot be created, or is not writable.
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

    def format_of(self, kind: str) -> TranscriptFormat:
        """Return the format of this name; words are written as running text."""
        return RUNNING_TEXT if kind == "txt" and self.has_words else FORMATS[kind]

    def write_files(self, name: str, transcript: Transcript) -> None:
        """Write a transcript into files, if there is a directory.

        A file is replaced atomically.

        Raises:
            CommandError: a file cannot be written.
        """
        if self.directory is None:
            return
        for kind, path in zip(self.kinds, self._paths([name]), strict=True):
            text = self.format_of(kind).whole(json_safe(name), transcript)
            part = self.directory / f".inferd-{os.getpid()}.part"
            try:
                part.write_text(text, encoding="utf-8", newline="\n")
                part.replace(path)
            except OSError as error:
                raise CommandError(f"{path}: {error.strerror}") from error
            finally:
                with suppress(OSError):
                    part.unlink(missing_ok=True)


class SegmentPrinter:
    """Prints a transcript segment by segment, if the destination is stdout."""

    def __init__(self, name: str, destination: Destination) -> None:
        self._name = json_safe(name)
        self._format = TranscriptFormat()
        if destination.directory is None:
            self._format = destination.format_of(destination.kinds[0])
        self._n_cues = 0

    @property
    def ends_lines(self) -> bool:
        """Whether everything it prints ends with a newline."""
        return self._format is not RUNNING_TEXT

    def print_segment(self, segment: TranscriptSegment) -> None:
        """Print a segment, if it has text."""
        if has_text(segment):
            head = "" if self._n_cues else self._format.head
            self._n_cues += 1
            self._print(head + self._format.cue(self._n_cues, segment))

    def finish(self, transcript: Transcript) -> None:
        """Print the end of the transcript."""
        head = "" if self._n_cues else self._format.head
        self._print(head + self._format.tail(self._name, transcript))

    def _print(self, text: str) -> None:
        if self._format is FORMATS["json"] and text:
            print_json(text)
        elif text:
            print_text(text)


def _stem(name: str) -> str:
    return STDIN_STEM if name == STDIN else Path(name).stem
