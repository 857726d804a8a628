"""Vectors as clients get them: of length 1, and as JSON."""

import msgspec
import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]


def unit_vectors(vectors: Vector) -> Vector:
    """Scale vectors ``(n, dimensions)`` to length 1; one of length 0 stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: Vector = (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return result


def json_rows(vectors: Vector, *, is_first: bool, is_last: bool) -> bytes:
    """Write the next rows of an array of arrays as JSON; all of them, joined, are it.

    Args:
        vectors: ``(n, dimensions)``, one at least.
        is_first: whether the array begins with them.
        is_last: whether it ends with them.
    """
    rows = msgspec.json.encode(vectors.tolist())[1:-1]
    return b"%b%b%b" % (b"[" if is_first else b",", rows, b"]" if is_last else b"")
