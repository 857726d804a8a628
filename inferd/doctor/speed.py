"""An estimate of how fast a model generates on this machine, without loading it.

A generated token needs nearly all weights once, and reading them from memory takes longer
than computing with them on most machines. So the rate is at most the memory's bandwidth by
the bytes of a token.
"""

import time
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

from inferd.limits.models import (
    ASSUMED_BANDWIDTH_BYTES_PER_S,
    BANDWIDTH_PROBE_BYTES,
    BANDWIDTH_PROBES,
)

SpeedClass = Literal["fast", "fluent", "slow", "very slow"]

_CLASSES: Final[tuple[tuple[float, SpeedClass], ...]] = (
    (30, "fast"),
    (8, "fluent"),
    (2, "slow"),
    (0, "very slow"),
)
"""Tokens per second from which each class begins; people read some six a second."""


class Speed(Struct, frozen=True, kw_only=True):
    """How fast a model generates at most, for one request at a time."""

    speed_class: SpeedClass
    tokens_per_s: float
    token_bytes: int
    """Bytes of weights that are read for each token."""
    bandwidth_bytes_per_s: int
    bandwidth_is_measured: bool
    """Whether it was measured now, or is assumed."""


def estimate_speed(token_bytes: int, bandwidth: int, *, is_measured: bool) -> Speed:
    """Estimate the speed of a model.

    Args:
        token_bytes: bytes of weights that are read for each token; over 0.
        bandwidth: bytes per second that memory gives.
        is_measured: whether that was measured.
    """
    rate = bandwidth / token_bytes
    return Speed(
        speed_class=next(name for least, name in _CLASSES if rate >= least),
        tokens_per_s=rate,
        token_bytes=token_bytes,
        bandwidth_bytes_per_s=bandwidth,
        bandwidth_is_measured=is_measured,
    )


def measure_bandwidth(
    available: int, clock: Callable[[], float] = time.thread_time
) -> int | None:
    """Measure how many bytes of memory one thread reads in a second, by copying some.

    Args:
        available: bytes of memory that are free; ``None`` is returned if too few are.
        clock: seconds; of this thread alone by default, as others may run beside it.

    Bounds:
        Two buffers of ``BANDWIDTH_PROBE_BYTES``, copied ``BANDWIDTH_PROBES`` times.
    """
    if available < 4 * BANDWIDTH_PROBE_BYTES:
        return None
    source = (
        bytearray(b"\1") * BANDWIDTH_PROBE_BYTES
    )  # pages of zeros would be one page
    target = bytearray(BANDWIDTH_PROBE_BYTES)
    target[:] = source
    shortest_s = float("inf")
    for _ in range(BANDWIDTH_PROBES):
        began_s = clock()
        target[:] = source
        shortest_s = min(shortest_s, clock() - began_s)
    return int(BANDWIDTH_PROBE_BYTES / shortest_s) if shortest_s > 0 else None


def speed_here(token_bytes: int, available: int) -> Speed:
    """Estimate the speed of a model on this machine, measured if there is memory for it."""
    measured = measure_bandwidth(available)
    return estimate_speed(
        token_bytes,
        measured or ASSUMED_BANDWIDTH_BYTES_PER_S,
        is_measured=measured is not None,
    )
