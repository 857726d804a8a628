"""Read a safetensors file."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from .source import SourceError


def read_safetensors(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Read the float32 tensors, by name; skip others, such as position ids.

    Raises:
        SourceError: the file is not safetensors, or is damaged.
    """
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise SourceError(f"{path.name}: {error}") from error
    return {
        name: values for name, values in tensors.items() if values.dtype == np.float32
    }
