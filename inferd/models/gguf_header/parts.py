"""The files of a GGUF model that was split: their names, and whether they belong together."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from inferd.limits.model_files import MODEL_PARTS
from inferd.models.file_error import ModelFileError
from inferd.models.gguf_header.header import GgufHeader

_PART: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<n_parts>\d{5})\.gguf")


class PartName(NamedTuple):
    """What the name of a part says."""

    stem: str
    """The model's."""
    number: int
    """From 1."""
    n_parts: int
    """Parts of the model."""


class PartFault(NamedTuple):
    """Why files are not the parts of one model."""

    part: int
    """Number of the file at fault, from 0."""
    text: str


def part_name(name: str) -> PartName | None:
    """Read the name of a part of a split model; ``None`` for other names."""
    found = _PART.fullmatch(name)
    if found is None:
        return None
    part = PartName(found["stem"], int(found["number"]), int(found["n_parts"]))
    return part if 1 <= part.number <= part.n_parts else None


def parts_beside(path: Path) -> list[Path]:
    """Return the paths of the other parts, where a file is named as the first of several.

    Raises:
        ModelFileError: there are too many.
    """
    named = part_name(path.name)
    if named is None or named.number != 1:
        return []
    _refuse_many(named.n_parts)
    return [
        path.with_name(f"{named.stem}-{number:05}-of-{named.n_parts:05}.gguf")
        for number in range(2, named.n_parts + 1)
    ]


def other_parts(path: Path, header: GgufHeader) -> list[Path]:
    """Return the paths of a split model's other parts, by the naming convention.

    Args:
        path: of the first part.
        header: its header.

    Raises:
        ModelFileError: there are too many, it is not the first part, or not named like one.
    """
    n_parts = header.n_parts
    if n_parts <= 1:
        return []
    _refuse_many(n_parts)
    if header.part:
        raise ModelFileError(
            f"it is part {header.part + 1} of {n_parts}: name the first part, which the "
            "others are found by"
        )
    named = part_name(path.name)
    if named is None or (named.number, named.n_parts) != (1, n_parts):
        raise ModelFileError(
            f"it is the first of {n_parts} parts, so its name must end in "
            f"-00001-of-{n_parts:05}.gguf"
        )
    return parts_beside(path)


def part_fault(headers: Sequence[GgufHeader]) -> PartFault | None:
    """Find what is wrong with files that are to be one model; ``None`` if nothing is.

    Headers of parts name no model, so a part of another one with as many parts and tensors is
    told by its SHA-256 alone.

    Args:
        headers: of all files, in order; at least one.
    """
    first = headers[0]
    n_parts = max(1, first.n_parts)
    if n_parts == len(headers) == 1:
        return None
    for index, header in enumerate(headers):
        if (text := _fault(first, index, header)) is not None:
            return PartFault(index, text)
    if len(headers) != n_parts:
        text = f"it is in {n_parts} files, and {len(headers)} are given"
        return PartFault(0, text)
    n_tensors = sum(header.n_tensors for header in headers)
    if n_tensors != first.n_all_tensors:
        text = f"its {n_parts} parts have {n_tensors} tensors of {first.n_all_tensors}"
        return PartFault(0, text)
    return None


def _fault(first: GgufHeader, index: int, header: GgufHeader) -> str | None:
    """Compare a file with the first one."""
    if max(1, header.n_parts) != max(1, first.n_parts):
        return f"it is {_place(header)}, and the first file is {_place(first)}"
    if header.part != index:
        return f"it is {_place(header)}, and part {index + 1} belongs in its place"
    if header.n_all_tensors != first.n_all_tensors:
        return (
            f"its model has {header.n_all_tensors} tensors, and that of the first part "
            f"has {first.n_all_tensors}"
        )
    if header.architecture not in {b"", first.architecture}:
        named, wanted = (
            each.architecture.decode("utf-8", "replace") for each in (header, first)
        )
        return (
            f"its architecture is {named!r}, and that of the first part is {wanted!r}"
        )
    return None


def _place(header: GgufHeader) -> str:
    """Describe what a file is a part of."""
    if header.n_parts <= 1:
        return "a whole model"
    return f"part {header.part + 1} of {header.n_parts}"


def _refuse_many(n_parts: int) -> None:
    if n_parts > MODEL_PARTS:
        raise ModelFileError(f"{n_parts} parts, over {MODEL_PARTS}")
