"""Embeddings and rankings of any number of texts, in requests that the daemon takes."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from inferd.limits.protocol import MAX_RERANK_BYTES, MAX_RERANK_DOCUMENTS

if TYPE_CHECKING:  # the client needs no numpy
    from numpy import float32
    from numpy.typing import NDArray

BATCH_TEXTS: Final = 256
"""Texts of one embed request. The daemon takes 2048, if their vectors fit its answer: 256 of
10,000 numbers do. Between two requests other users have their turn."""
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of UTF-8 in one embed request; a longer text is a request of its own. It keeps what
is encoded, sent and computed at once small beside the 64 MiB of a line."""


class Embeddings(Struct, frozen=True, kw_only=True):
    """One vector for each text, in order."""

    vectors: list[list[float]]
    model: str
    """The model's own name; empty if there were no texts."""
    input_tokens: int
    """Tokens of all texts."""

    def numpy(self) -> "NDArray[float32]":
        """Return the vectors as an array of 32-bit floats, of shape (texts, dimensions).

        Raises:
            ModuleNotFoundError: numpy is not installed.
        """
        import numpy as np  # noqa: PLC0415  # the client needs none

        return np.array(self.vectors, dtype=np.float32)


class RankedText(Struct, frozen=True, kw_only=True):
    """A document with its score."""

    index: int
    """Of the document in those that were given."""
    score: float
    """As the model computes it: higher is more relevant; other models have other ranges."""
    document: str


class Ranking(Struct, frozen=True, kw_only=True):
    """Documents by score, best first."""

    results: list[RankedText]
    model: str
    """The model's own name; empty if there were no documents."""
    input_tokens: int
    """Tokens of the query and the documents, of all requests."""


def embed_batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split texts into those of one request each."""
    return _batches(texts, BATCH_TEXTS, BATCH_BYTES)


def rerank_batches(query: str, documents: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split documents into those of one request each; a score depends on no other document."""
    n_left = MAX_RERANK_BYTES - len(query.encode())
    return _batches(documents, MAX_RERANK_DOCUMENTS, n_left)


def _batches(
    texts: Sequence[str], max_texts: int, max_bytes: int
) -> Iterator[Sequence[str]]:
    start = n_bytes = 0
    for index, text in enumerate(texts):
        size = len(text.encode(errors="replace"))
        if index - start == max_texts or (index > start and n_bytes + size > max_bytes):
            yield texts[start:index]
            start, n_bytes = index, 0
        n_bytes += size
    if start < len(texts):
        yield texts[start:]
