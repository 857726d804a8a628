"""Texts to vectors: all in one request, and one in each."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from bench.embed import (
    GOALS,
    Side,
    check_alike,
    our_side,
    peer_side,
    speed,
)
from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, Take, in_turns

PEER_UBATCH: Final = 512
PEER_SLOTS: Final = 32
"""What suits the peer best, as ``bench.embed --tune`` found."""


@contextmanager
def embed_sides(lab: Lab) -> Iterator[dict[str, Side]]:
    """Run the sides that are wanted while inside."""
    options = Namespace(threads=lab.n_threads, slots=PEER_SLOTS, ubatch=PEER_UBATCH)
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        if lab.has("inferd"):
            ours = our_side(lab.model.path, lab.n_threads)
            sides["inferd"] = stack.enter_context(ours)
        if lab.has("peer"):
            peer = peer_side(lab.model.path, options)
            sides["peer"] = stack.enter_context(peer)
        yield sides


@contextmanager
def embed(lab: Lab, *, size: int | None) -> Iterator[Take]:
    """Have every side embed the same texts, so many in a request; ``None`` for all."""
    n_texts = lab.sizes.n_texts
    with embed_sides(lab) as sides:
        if len(sides) > 1:
            check_alike(sides["inferd"], sides["peer"])

        def take(number: int) -> Reading:
            speeds = in_turns(
                number,
                {
                    name: partial(speed, side, n_texts, size or n_texts)
                    for name, side in sides.items()
                },
            )
            return Reading(
                {name: each.texts_per_s for name, each in speeds.items()},
                {"cores": {name: each.cores for name, each in speeds.items()}},
            )

        take(0)
        yield take


NO_RAW: Final = {"raw": "llama.cpp's benchmarks time no embeddings of texts"}
EMBED: Final = Measure(
    key="embed",
    title="embeddings, all texts in one request",
    unit="texts/s",
    is_more_better=True,
    open=partial(embed, size=None),
    goals=(Goal("ratio_peer", at_least=GOALS["all"]),),
    reasons=NO_RAW,
)
EMBED_ONE: Final = Measure(
    key="embed_one",
    title="embeddings, one text in a request",
    unit="texts/s",
    is_more_better=True,
    open=partial(embed, size=1),
    goals=(Goal("ratio_peer", at_least=GOALS["one"]),),
    reasons=NO_RAW,
)
