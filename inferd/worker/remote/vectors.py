"""The vectors that a remote sends, checked and as the daemon wants them."""

import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from inferd.backend.job import EmbedJob
from inferd.ipc.worker import Embedded
from inferd.worker.remote.failure import RemoteError

V = TypeVar("V")
_ROWS: Final = 64
"""Vectors in one message to the daemon."""


def read_vectors(
    n_embd: int | None,
    ticket: int,
    job: EmbedJob,
    vectors: Sequence[Sequence[float]],
    n_tokens: int | None,
) -> Sequence[Embedded]:
    """Check vectors, cut them to the dimensions that were asked for, and scale them.

    Args:
        n_embd: how many numbers one must have; ``None`` for any.
        ticket: of the job.
        job: with the texts.
        vectors: in the order of the texts.
        n_tokens: as the remote counts them.

    Raises:
        RemoteError: they are not as many as texts, not of one length, or no numbers.
    """
    lengths = {len(each) for each in vectors}
    if len(vectors) != job.n_inputs or len(lengths) != 1 or 0 in lengths:
        raise RemoteError(
            f"the remote sent {len(vectors)} vectors, of {len(lengths)} lengths, for "
            f"{job.n_inputs} texts"
        )
    [length] = lengths
    if n_embd is not None and length != n_embd:
        raise RemoteError(
            f"the remote's vectors have {length} numbers, n_embd is {n_embd}",
            is_configuration=True,
        )
    dimensions = min(job.dimensions or length, length)
    rows = [_unit(each, dimensions) for each in vectors]
    return [*_messages(ticket, rows, dimensions, n_tokens)]


def in_order(found: Sequence[tuple[int, V]]) -> list[V]:
    """Order by index; nothing if an index is missing, or there twice."""
    by_index = dict(found)
    if len(by_index) != len(found) or set(by_index) != set(range(len(found))):
        return []
    return [by_index[index] for index in range(len(found))]


def _unit(vector: Sequence[float], dimensions: int) -> list[float]:
    """Cut a vector, and scale it to length 1; one of length 0 stays as it is.

    Raises:
        RemoteError: it has a number that is not finite.
    """
    cut = vector[:dimensions]
    length = math.hypot(*cut)
    if not math.isfinite(length):
        raise RemoteError("the remote's vectors have numbers that are not finite")
    return [each / length for each in cut] if length else [*cut]


def _messages(
    ticket: int, rows: Sequence[Sequence[float]], dimensions: int, n_tokens: int | None
) -> Iterator[Embedded]:
    """Write rows as the parts of a JSON array."""
    for start in range(0, len(rows), _ROWS):
        is_last = start + _ROWS >= len(rows)
        part = msgspec.json.encode(rows[start : start + _ROWS])[1:-1]
        yield Embedded(
            ticket=ticket,
            embeddings=b"%b%b%b" % (b"," if start else b"[", part, b"]" * is_last),
            dimensions=dimensions,
            is_last=is_last,
            n_tokens=n_tokens if is_last else None,
        )
