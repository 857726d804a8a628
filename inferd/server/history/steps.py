"""The steps of a request's life, as they happen."""

from dataclasses import dataclass


@dataclass(slots=True)
class Steps:
    """When a request got to each step, in seconds on trio's clock; ``None`` for not yet."""

    queued_at: float | None = None
    """It got a place in the queue."""
    loaded_at: float | None = None
    """Its model was loaded."""
    prepared_at: float | None = None
    """Its prompt was counted."""
    left_at: float | None = None
    """It gave its place, or its permit, back."""
    n_stalls: int = 0
    """Times that its client did not read, and its answer waited."""
    stalled_s: float = 0.0

    def note_stall(self, seconds: float) -> None:
        """Note that the answer has waited for the client to read."""
        self.n_stalls += 1
        self.stalled_s += seconds
