"""Interleave a prompt's text tokens with its media."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from inferd.worker.llama.multimodal.chunks import Chunk, MediaChunk
from inferd.worker.llama.multimodal.media import placeholder_tokens

__all__ = ["MediaSpan", "PromptMedia", "interleave"]


class PromptMedia(NamedTuple):
    """A medium of a prompt, split into chunks."""

    digest: bytes
    chunks: Sequence[Chunk]
    """The medium's chunks, encoded or not yet encoded."""

    def copy_vectors(self, chunks: Sequence[Chunk]) -> None:
        """Use the embeddings of the same medium's encoded chunks."""
        encoded = (chunk for chunk in chunks if isinstance(chunk, MediaChunk))
        for own, other in zip(self.media_chunks, encoded, strict=True):
            own.vectors, own.source = other.vectors, None

    @property
    def media_chunks(self) -> list[MediaChunk]:
        """The medium's chunks, without text chunks."""
        return [chunk for chunk in self.chunks if isinstance(chunk, MediaChunk)]

    @property
    def tokens(self) -> list[int]:
        """The medium's tokens, with placeholder tokens in place of embeddings."""
        encoded = self.media_chunks
        made_up = iter(
            placeholder_tokens(self.digest, [each.n_tokens for each in encoded])
        )
        return list(
            chain.from_iterable(
                next(made_up) if isinstance(chunk, MediaChunk) else chunk
                for chunk in self.chunks
            )
        )


class MediaSpan(NamedTuple):
    """Range of a prompt's tokens that are placeholders for a chunk."""

    begin: int
    chunk: MediaChunk

    @property
    def end(self) -> int:
        """Index of the first token after it."""
        return self.begin + self.chunk.n_tokens


def interleave(
    texts: Sequence[Sequence[int]], media: Sequence[PromptMedia]
) -> tuple[list[int], list[MediaSpan]]:
    """Join a prompt's text tokens and its media.

    Args:
        texts: tokens before, between and after the media: one list more than media.
        media: in order.

    Returns:
        All tokens, and the spans of placeholders.
    """
    tokens: list[int] = list(texts[0])
    spans: list[MediaSpan] = []
    for medium, text in zip(media, texts[1:], strict=True):
        spans += _spans(medium.chunks, len(tokens))
        tokens += medium.tokens
        tokens += text
    return tokens, spans


def _spans(chunks: Iterable[Chunk], begin: int) -> list[MediaSpan]:
    listed = list(chunks)
    sizes = [p.n_tokens if isinstance(p, MediaChunk) else len(p) for p in listed]
    begins = accumulate(sizes, initial=begin)
    return [
        MediaSpan(at, chunk)
        for at, chunk in zip(begins, listed, strict=False)
        if isinstance(chunk, MediaChunk)
    ]
