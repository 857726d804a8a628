"""Embedding and rerank jobs: their tokenised texts and results."""

from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from inferd.backend.job import EmbedJob, RerankJob
from inferd.worker.backend import PreparedJob

Vector = npt.NDArray[np.float32]


def unit_vectors(vectors: Vector) -> Vector:
    """Scale vectors ``(n, dimensions)`` to length 1; one of length 0 stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: Vector = (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return result


def json_rows(vectors: Vector, *, is_first: bool, is_last: bool) -> bytes:
    """Encode the next rows of an array of arrays as JSON, to be concatenated.

    Args:
        vectors: ``(n, dimensions)``, with at least one row.
        is_first: whether these rows begin the array.
        is_last: whether they end it.
    """
    rows = msgspec.json.encode(vectors.tolist())[1:-1]
    return b"%b%b%b" % (b"[" if is_first else b",", rows, b"]" if is_last else b"")


__all__ = ["PreparedTexts"]


@dataclass
class PreparedTexts(PreparedJob):
    """A job's tokenised texts, and the results so far."""

    job: EmbedJob | RerankJob
    texts: list[list[int]]
    results: list[Vector] = field(default_factory=list)
    n_reported: int = 0
    """Results that were checked, and reported if they are embeddings."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all texts."""
        return sum(map(len, self.texts))
