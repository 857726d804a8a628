"""What the next batch holds: who goes on, and how much is read of which prompt."""

from collections.abc import Collection
from dataclasses import dataclass, field

from inferd.worker.limits import (
    FORCED_TOKENS,
    PREFILL_CHUNK_MIN_TOKENS,
    PREFILL_CHUNK_TOKENS,
)
from inferd.worker.llama.pace import Pace
from inferd.worker.llama.sequence import Sequence

__all__ = ["Row", "plan"]


@dataclass(slots=True)
class Row:
    """What one sequence has in a batch."""

    sequence: Sequence
    n_tokens: int
    chooses: bool
    """Whether these are all there are, so that the next one is chosen."""
    drafts: list[int] = field(default_factory=list)
    """Tokens behind them that are likely to be chosen."""
    n_guessed: int = 0
    """How many of the drafts, the last ones, were guessed."""
    logits_row: int = -1
    """Of the last token, once it is in a batch; its drafts have the rows behind."""


def plan(
    running: Collection[Sequence], pace: Pace, *, can_take_back: bool
) -> list[Row]:
    """Take every stream a step further, and share what room is left among the prompts.

    Each prompt gets as much as the others, and what short ones leave is for longer ones:
    nobody waits for a whole long prompt to be read.

    Args:
        running: what runs, but for those that have a medium to read.
        pace: how many tokens of prompts are read at once.
        can_take_back: whether drafts that turn out wrong can be dropped again.

    Returns:
        At most ``PREFILL_CHUNK_TOKENS`` tokens, drafts among them.
    """
    streams = [each for each in running if not each.is_prefilling]
    prompts = [each for each in running if each.is_prefilling]
    for_prompts = PREFILL_CHUNK_MIN_TOKENS if prompts else 0
    room = PREFILL_CHUNK_TOKENS - for_prompts
    rows: list[Row] = []
    for n_after, stream in zip(reversed(range(len(streams))), streams, strict=True):
        rows.append(_row(stream, min(FORCED_TOKENS, room - n_after), can_take_back))
        room -= rows[-1].n_tokens + len(rows[-1].drafts)
    room = min(room + for_prompts, pace.chunk if streams else pace.chunk_alone)
    prompts.sort(key=lambda each: each.n_unread)
    for n_left, prompt in zip(range(len(prompts), 0, -1), prompts, strict=True):
        if share := -(-room // n_left):
            rows.append(_row(prompt, share, can_take_back))
            room -= rows[-1].n_tokens + len(rows[-1].drafts)
    return rows


def _row(sequence: Sequence, room: int, can_take_back: bool) -> Row:  # noqa: FBT001  # as above
    n_tokens = min(room, sequence.n_next)
    row = Row(sequence, n_tokens, sequence.is_through_with(n_tokens))
    if row.chooses and can_take_back:
        n_drafts = min(room - n_tokens, sequence.n_draftable)
        row.drafts = (sequence.drafts + sequence.guesses)[:n_drafts]
        row.n_guessed = max(0, len(row.drafts) - len(sequence.drafts))
    return row
