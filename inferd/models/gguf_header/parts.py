"""The names of the files that a GGUF model was split into."""

import re
from pathlib import Path
from typing import Final

from inferd.limits.model_files import MODEL_PARTS
from inferd.models.file_error import ModelFileError

_FIRST_PART: Final = re.compile(r"(?P<stem>.+)-00001-of-(?P<n_parts>\d{5})\.gguf")


def other_parts(path: Path, n_parts: int) -> list[Path]:
    """Return the paths of a split model's other parts, by the naming convention.

    Args:
        path: of the first part.
        n_parts: files of the model, as the first one's header says; 0 or 1 if not split.

    Raises:
        ModelFileError: there are too many, or the file is not named like a first part.
    """
    if n_parts <= 1:
        return []
    if n_parts > MODEL_PARTS:
        raise ModelFileError(f"{n_parts} parts, over {MODEL_PARTS}")
    named = _FIRST_PART.fullmatch(path.name)
    if named is None or int(named["n_parts"]) != n_parts:
        raise ModelFileError(
            f"it is one of {n_parts} parts, so the first one's name must end in "
            f"-00001-of-{n_parts:05}.gguf"
        )
    return [
        path.with_name(f"{named['stem']}-{number:05}-of-{n_parts:05}.gguf")
        for number in range(2, n_parts + 1)
    ]
