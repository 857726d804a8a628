"""Memory without end, and what a worker might want of it."""

from inferd.engine.ledger import Ledger
from inferd.fit import Budget, Demand, Share

DEMAND = Demand(n_ctx=512, is_set=False, has_slots=True, weights=1000, own=10)


def roomy_ledger() -> Ledger:
    """Make a ledger that gives all that is demanded."""
    return Ledger([], Budget(n_bytes=2**50, n_slots=2, slots_are_set=True))


async def allot_all(demand: Demand) -> Share:
    """Give all that is demanded."""
    return Share(n_slots=2, n_ctx=demand.n_ctx)
