"""A model that shares the memory: its state, its requests, and the times of both."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from inferd.limits.residency import KEPT_USERS

OPERATOR: Final = -1
"""In place of a user: who has asked for a load without a request."""


class ModelState(StrEnum):
    """Where a model is between its file and memory."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"
    FAILED = "failed"
    """Its last load failed; it may be tried again from ``Model.retry_at``."""


_HOLDS_MEMORY = frozenset({ModelState.LOADING, ModelState.READY, ModelState.UNLOADING})
_ABSENT = frozenset({ModelState.UNLOADED, ModelState.FAILED})


@dataclass(slots=True, kw_only=True)
class Model:
    """A model, whether or not it is loaded; times are seconds on the caller's clock."""

    name: str
    n_bytes: int
    """Predicted memory while it is loaded."""
    keep_alive_s: float
    """Seconds without a request until it is unloaded, as configured; 0 for never."""
    is_pinned: bool
    """Whether it is to be loaded all the time, and is never unloaded for another."""
    state: ModelState = ModelState.UNLOADED
    n_waiting: int = 0
    """Requests for it that have not started."""
    n_running: int = 0
    """Requests that have started and not ended, whether they run or are paused."""
    wanted_since: float | None = None
    """Since when it is wanted and not ready."""
    ready_at: float = -math.inf
    used_at: float = -math.inf
    """When it got ready, or its last request ended, whichever is later."""
    kept_until: dict[int, float] = field(default_factory=dict)
    """Until when each user who has used it since its load wants it loaded, as that user's
    last request asked."""
    retry_at: float = -math.inf
    """Before this it is not loaded, as its last load failed."""
    is_load_asked: bool = False
    is_unload_asked: bool = False
    is_retired: bool = False
    """Whether it is removed once no request needs it."""

    @property
    def reserved(self) -> int:
        """The bytes that count as taken."""
        return self.n_bytes if self.state in _HOLDS_MEMORY else 0

    @property
    def is_absent(self) -> bool:
        """Whether it takes no memory."""
        return self.state in _ABSENT

    @property
    def is_wanted(self) -> bool:
        """Whether it is not loaded, and should be."""
        asked = self.n_waiting > 0 or self.is_load_asked or self.is_pinned
        return self.is_absent and asked

    def waits_since(self, now: float) -> float:
        """Return since when it waits; ``now`` if it does not wait yet."""
        return now if self.wanted_since is None else self.wanted_since

    @property
    def is_unused(self) -> bool:
        """Whether it is ready and nobody needs it."""
        return self.state is ModelState.READY and not self.n_waiting + self.n_running

    @property
    def idle_until(self) -> float:
        """When it is to be unloaded if no request comes; infinite for never."""
        if self.kept_until:
            return max(self.kept_until.values())
        return self.used_at + (self.keep_alive_s or math.inf)

    def keep_for(self, user: int, asked_s: float | None, now: float) -> None:
        """Replace the time until which a user wants it loaded.

        Args:
            user: whose request has ended.
            asked_s: seconds that the request asks for, 0 for as long as allowed; bounded
                by ``keep_alive_s``.
            now: seconds.

        Bounds:
            ``KEPT_USERS`` users; of more, those are forgotten whose time is over first, which
            alone keep nothing loaded.
        """
        kept_s = min(asked_s or math.inf, self.keep_alive_s or math.inf)
        self.kept_until[user] = now + kept_s
        if len(self.kept_until) > KEPT_USERS:
            del self.kept_until[min(self.kept_until, key=self.kept_until.__getitem__)]

    def note_wanted(self, now: float) -> None:
        """Begin to count, or stop counting, how long it waits for memory."""
        if not self.is_wanted:
            self.wanted_since = None
        elif self.wanted_since is None:
            self.wanted_since = now
