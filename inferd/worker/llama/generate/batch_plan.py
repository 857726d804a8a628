"""Plan the next batch: which sequences decode, and how many tokens of each prompt."""

from collections.abc import Collection
from dataclasses import dataclass, field

from inferd.limits.worker import (
    FORCED_TOKENS,
    PREFILL_CHUNK_MIN_TOKENS,
    PREFILL_CHUNK_TOKENS,
)
from inferd.worker.llama.generate.chunk_size import ChunkSizer
from inferd.worker.llama.generate.sequence import RunningSequence

__all__ = ["BatchRow", "plan_batch"]


@dataclass(slots=True)
class BatchRow:
    """One sequence's tokens in a batch."""

    sequence: RunningSequence
    n_tokens: int
    is_sampled: bool
    """Whether the row ends at the sequence's last token, so that the next one is sampled."""
    drafts: list[int] = field(default_factory=list)
    """Tokens that are likely to be chosen next; decoded after the sequence's own tokens."""
    n_drafted: int = 0
    """Number of drafts, counted from the last, that speculation predicted."""
    logits_row: int = -1
    """Logits row of the last token, once it is in a batch; its drafts have the next rows."""

    @property
    def is_plain(self) -> bool:
        """Whether it is one token, after which the next one is sampled."""
        return self.n_tokens == 1 and self.is_sampled and not self.drafts


def plan_batch(
    running: Collection[RunningSequence],
    chunk_sizer: ChunkSizer,
    *,
    can_roll_back: bool,
) -> list[BatchRow]:
    """Plan one token for every answer, and share the rest of the batch among prompts.

    Prompts get equal shares, and what short ones leave goes to longer ones, so that none
    waits for a whole long prompt to be decoded.

    Args:
        running: running sequences, except those whose next tokens are media.
        chunk_sizer: limits how many tokens of prompts are decoded at once.
        can_roll_back: whether the cells of rejected drafts can be removed.

    Returns:
        At most ``PREFILL_CHUNK_TOKENS`` tokens, drafts among them.
    """
    streams = [each for each in running if not each.is_prefilling]
    prompts = [each for each in running if each.is_prefilling]
    for_prompts = PREFILL_CHUNK_MIN_TOKENS if prompts else 0
    room = PREFILL_CHUNK_TOKENS - for_prompts
    rows: list[BatchRow] = []
    for n_after, stream in zip(reversed(range(len(streams))), streams, strict=True):
        rows.append(_row(stream, min(FORCED_TOKENS, room - n_after), can_roll_back))
        room -= rows[-1].n_tokens + len(rows[-1].drafts)
    if prompts:
        chunk_sizer.depth = sum(each.n_cached for each in prompts) // len(prompts)
    room = min(
        room + for_prompts, chunk_sizer.chunk if streams else chunk_sizer.chunk_alone
    )
    prompts.sort(key=lambda each: each.n_unread)
    for n_left, prompt in zip(range(len(prompts), 0, -1), prompts, strict=True):
        if share := -(-room // n_left):
            rows.append(_row(prompt, share, can_roll_back))
            room -= rows[-1].n_tokens + len(rows[-1].drafts)
    return rows


def _row(sequence: RunningSequence, room: int, can_roll_back: bool) -> BatchRow:  # noqa: FBT001  # as above
    n_tokens = min(room, sequence.n_next)
    row = BatchRow(sequence, n_tokens, sequence.is_finished_by(n_tokens))
    if row.is_sampled and can_roll_back:
        n_drafts = min(room - n_tokens, sequence.n_draftable)
        row.drafts = (sequence.likely_tokens + sequence.drafted_tokens)[:n_drafts]
        row.n_drafted = max(0, len(row.drafts) - len(sequence.likely_tokens))
    return row
