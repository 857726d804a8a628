"""An answer that is being written."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from inferd.backend import Reuse
from inferd.events import MalformedToolCall
from inferd.wire.responses import Guesses


@dataclass
class Spoken:
    """An answer of some tokens."""

    n_tokens: int = 0
    first_token_at: float | None = None
    warnings: Sequence[MalformedToolCall] = ()
    reuse: Reuse = field(default_factory=Reuse)
    guesses: Guesses = field(default_factory=Guesses)
