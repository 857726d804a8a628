"""An answer that is being written."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from inferd.backend.events import MalformedToolCall
from inferd.backend.interface import CacheReuse
from inferd.wire.responses import DraftCounts


@dataclass
class Spoken:
    """An answer of some tokens."""

    n_tokens: int = 0
    first_token_at: float | None = None
    warnings: Sequence[MalformedToolCall] = ()
    reuse: CacheReuse = field(default_factory=CacheReuse)
    draft_counts: DraftCounts = field(default_factory=DraftCounts)
    unsent_token_ids: Sequence[int] = ()
    n_first_tokens: int = 1
