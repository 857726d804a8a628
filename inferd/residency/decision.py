"""What ``Residency`` is given, and what it answers: the rules of turns, and decisions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from inferd.limits.residency import LONGEST_WAIT_S, MIN_RESIDENCY_S


class TurnRules(NamedTuple):
    """When models that do not fit together take turns."""

    min_residency_s: float = MIN_RESIDENCY_S
    """Seconds after it got ready in which a model is not unloaded for another."""
    longest_wait_s: float = LONGEST_WAIT_S
    """Seconds that a model waits for one in use; then that one starts no more requests."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is to be done now; the models concerned are marked already."""

    loads: Sequence[str]
    """Models to load: call ``loaded`` or ``failed`` for each."""
    unloads: Sequence[str]
    """Models to unload, none of which runs a request: call ``unloaded`` for each."""
    removed: Sequence[str]
    """Retired models that are forgotten."""
    closed: frozenset[str]
    """Models whose waiting requests must not start now."""
    at: float
    """When to decide again if nothing changes before; infinite for never."""
