"""Read the headers of a model's files: one way for both formats."""

import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from inferd.models.facts.gguf_facts import KEPT_TEXTS, chat_template, gguf_facts
from inferd.models.facts.model import ModelFacts
from inferd.models.facts.whisper_facts import whisper_facts
from inferd.models.file_error import ModelFileError
from inferd.models.gguf_header.header import (
    MAGIC as GGUF_MAGIC,
    GgufContents,
    read_contents,
)
from inferd.models.gguf_header.parts import other_parts, part_fault
from inferd.models.whisper_header.header import MAGIC as WHISPER_MAGIC, read_header
from inferd.trusted_path import open_regular_file


class ReadModel(NamedTuple):
    """What the files of a model say."""

    facts: ModelFacts
    chat_template: str = ""
    """Empty without one."""


def read_model(paths: Sequence[Path]) -> ReadModel:
    """Read the headers of a model's files. Weights are not read, and nothing is mapped.

    Args:
        paths: of the file, or of all parts of a split one in order. If only the first
            part of a split one is given, the others are found by their names.

    Raises:
        ModelFileError: a file is not one that can be loaded, or they are not the parts of
            one model; the text has the path.

    Bounds:
        As ``read_contents`` and ``read_header`` have them, a file at a time.
    """
    first = _open(paths[0])
    with first:
        magic = first.read(len(GGUF_MAGIC))
        n_bytes = os.fstat(first.fileno()).st_size
        if magic != GGUF_MAGIC:
            return _read_whisper(first, n_bytes, paths[0], magic)
        contents = _read_gguf(first, paths[0])
    try:
        others = paths[1:] or other_parts(paths[0], contents.header)
    except ModelFileError as error:
        raise ModelFileError(f"{paths[0]}: {error}") from error
    parts = [contents]
    for path in others:
        with _open(path) as file:
            parts.append(_read_gguf(file, path))
    if fault := part_fault([part.header for part in parts]):
        path = (paths[0], *others)[fault.part]
        raise ModelFileError(f"{path}: {fault.text}")
    return ReadModel(gguf_facts(parts), chat_template(contents))


def _read_whisper(file: FileIO, n_bytes: int, path: Path, magic: bytes) -> ReadModel:
    if magic != WHISPER_MAGIC:
        raise ModelFileError(f"{path}: neither a GGUF file nor a model of whisper.cpp")
    file.seek(0)
    try:
        return ReadModel(whisper_facts(read_header(file, n_bytes), n_bytes))
    except (ModelFileError, OSError) as error:
        raise ModelFileError(f"{path}: {error}") from error


def _read_gguf(file: FileIO, path: Path) -> GgufContents:
    file.seek(0)
    try:
        return read_contents(file, os.fstat(file.fileno()).st_size, KEPT_TEXTS)
    except (ModelFileError, OSError) as error:
        raise ModelFileError(f"{path}: {error}") from error


def _open(path: Path) -> FileIO:
    """Open a regular file."""
    try:
        return FileIO(open_regular_file(path))
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from error
