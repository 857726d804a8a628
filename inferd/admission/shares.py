"""Which running request gives its permit back, and when: shares of permits in time.

The users who run or wait have equal shares of the permits. While one of them waits who
has less than its share, another has more; of that one's requests one is paused, once it
has run for a quantum.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from inferd.admission.budget import Amount
from inferd.admission.ring import Place

STARTED: Final = -(2**63)
"""Rank of a request that has run before: what has begun goes on before anything of the
same user begins, so a user has no more begun than there are permits."""


class Claim(NamedTuple):
    """What the gate has to know of a request."""

    uid: int = -1
    """The caller's user."""
    priority: int = 0
    """Among the same user's requests, higher first."""
    n_bytes: int = 0
    """Of the line that it came in."""
    writes: bool = True
    """Whether it wants a text written. Somebody waits for that, as a rule; vectors and
    scores are asked for by programs, many at a time."""
    is_live: bool = False
    """Whether sound is appended to it while it runs."""


@dataclass(slots=True)
class Request:
    """One who is here: it waits, runs, or has been paused."""

    claim: Claim
    place: Place
    is_first: bool
    """Whether nothing of its user's was here when it came, or nothing that writes."""
    n_tokens: int = 0
    started_at: float | None = None
    """Since when it has a permit; ``None`` while it has none."""
    paused_at: float | None = None
    """When its permit was taken back last, if it waits to go on."""
    is_new: bool = True
    """Whether it has not had a permit yet."""
    is_asked: bool = False
    """Whether it has been asked to give its permit back."""
    is_silent: bool = False
    """Whether it has nothing to do, so that it neither runs nor waits."""

    def amount(self, units: int) -> Amount:
        """Give so much of something, as its own."""
        return Amount(self.claim.uid, units, self.is_first)


class Due(NamedTuple):
    """What is to be done about shares."""

    at: float = math.inf
    """When a request is to be paused, unless something changes before; in seconds."""
    ticket: int | None = None
    """That request, if it is to be paused now."""


def due(
    running: Mapping[int, Request],
    lines: Sequence[Sequence[Request]],
    *,
    max_active: int,
    quantum_s: float,
    now: float,
) -> Due:
    """Tell which request is to be paused next.

    Permits of those that were asked already count as given to those who wait. Of several
    users over their share, the one with the most pays, of equals the one whose request has
    run for longest; of its requests, the one that would go on last.

    Args:
        running: all that hold a permit, by ticket.
        lines: those who wait, each user's in the order of turns; users in turn.
        max_active: permits.
        quantum_s: seconds for which a permit is kept at the least.
        now: seconds, on the clock of the requests' moments.

    Cost: the square of the users at most, once for each that was asked.
    """
    holding = [each for each in running.values() if not each.is_asked]
    held = Counter(each.claim.uid for each in holding)
    users = {each.claim.uid for each in running.values()}
    users |= {line[0].claim.uid for line in lines}
    asked = {each.claim.uid for each in running.values() if each.is_asked}
    wanting = [
        each
        for each in _heads(lines, held, n_permits=len(running) - len(holding))
        if held[each.claim.uid] * len(users) < max_active
        and each.claim.uid not in asked  # what was asked goes first, a quantum later
    ]
    over = [each for each in holding if held[each.claim.uid] * len(users) > max_active]
    if not wanting or not over:
        return Due()
    may_take_at = min(_may_take_at(each, quantum_s) for each in wanting)
    at = max(may_take_at, min(_end_of_quantum(each, quantum_s) for each in over))
    if at > now:
        return Due(at)
    ripe = [each for each in over if _end_of_quantum(each, quantum_s) <= now]
    return Due(at, _choose(ripe, held).place.ticket)


def _heads(
    lines: Sequence[Sequence[Request]], held: Counter[int], *, n_permits: int
) -> Iterable[Request]:
    """Give those who are next of their user once so many permits more are given out.

    Args:
        lines: those who wait.
        held: permits by user; those that are given out are added.
        n_permits: to be given out.
    """
    waiting: list[Iterator[Request]] = [iter(line) for line in lines]
    heads: list[Request | None] = [next(each, None) for each in waiting]
    for _ in range(n_permits):
        there = [n for n, head in enumerate(heads) if head is not None]
        if not there:
            break
        place = min(there, key=lambda n: held[lines[n][0].claim.uid])
        held[lines[place][0].claim.uid] += 1
        heads[place] = next(waiting[place], None)
    return [each for each in heads if each is not None]


def _may_take_at(waiting: Request, quantum_s: float) -> float:
    """Tell when a permit is taken from others for one: at once, unless it has run before."""
    return -math.inf if waiting.paused_at is None else waiting.paused_at + quantum_s


def _end_of_quantum(running: Request, quantum_s: float) -> float:
    assert running.started_at is not None  # noqa: S101  # it has a permit
    return running.started_at + quantum_s


def _choose(ripe: Sequence[Request], held: Counter[int]) -> Request:
    """Choose the request that pays."""
    payer = min(ripe, key=lambda each: (-held[each.claim.uid], each.started_at or 0.0))
    own = (each for each in ripe if each.claim.uid == payer.claim.uid)
    return max(own, key=lambda each: each.place)
