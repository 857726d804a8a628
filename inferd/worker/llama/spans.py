"""Where media stand in a prompt, and which part of one is read next."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from inferd.worker.llama.clips import Clip, Part
from inferd.worker.llama.media import pseudo_tokens

__all__ = ["Seen", "Span", "join"]


class Seen(NamedTuple):
    """A medium in a prompt."""

    digest: bytes
    parts: Sequence[Part]
    """What it is read as; vectors may be missing yet."""

    def take(self, parts: Sequence[Part]) -> None:
        """Take the vectors of the same medium's parts."""
        clips = (part for part in parts if isinstance(part, Clip))
        for own, other in zip(self.clips, clips, strict=True):
            own.vectors, own.source = other.vectors, None

    @property
    def clips(self) -> list[Clip]:
        """Those of its parts that are no tokens."""
        return [part for part in self.parts if isinstance(part, Clip)]

    @property
    def tokens(self) -> list[int]:
        """Its tokens, made up where there are none."""
        clips = self.clips
        made_up = iter(pseudo_tokens(self.digest, [each.n_tokens for each in clips]))
        return list(
            chain.from_iterable(
                next(made_up) if isinstance(part, Clip) else part for part in self.parts
            )
        )


class Span(NamedTuple):
    """Places of a prompt that are read as vectors."""

    begin: int
    clip: Clip

    @property
    def end(self) -> int:
        """The first place behind."""
        return self.begin + self.clip.n_tokens


def join(
    texts: Sequence[Sequence[int]], media: Sequence[Seen]
) -> tuple[list[int], list[Span]]:
    """Put a prompt together.

    Args:
        texts: tokens before, between and behind the media: one list more than media.
        media: in their order.

    Returns:
        All tokens, and where those are that were made up.
    """
    tokens: list[int] = list(texts[0])
    spans: list[Span] = []
    for seen, text in zip(media, texts[1:], strict=True):
        spans += _spans(seen.parts, len(tokens))
        tokens += seen.tokens
        tokens += text
    return tokens, spans


def _spans(parts: Iterable[Part], begin: int) -> list[Span]:
    listed = list(parts)
    sizes = [p.n_tokens if isinstance(p, Clip) else len(p) for p in listed]
    begins = accumulate(sizes, initial=begin)
    return [
        Span(at, part)
        for at, part in zip(begins, listed, strict=False)
        if isinstance(part, Clip)
    ]
