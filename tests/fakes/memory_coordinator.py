"""A memory coordinator without a limit, and a demand of a worker."""

from inferd.memory.coordinator import MemoryCoordinator
from inferd.memory.plan import MemoryBudget, MemoryDemand, MemoryShare

DEMAND = MemoryDemand(n_ctx=512, is_set=False, has_slots=True, weights=1000, own=10)


def unlimited_coordinator(backend: str) -> MemoryCoordinator:
    """Make a coordinator that grants every demand of a backend."""
    return MemoryCoordinator(
        [backend], MemoryBudget(n_bytes=2**50, n_slots=2, slots_are_set=True)
    )


async def grant_all(demand: MemoryDemand) -> MemoryShare:
    """Grant a demand in full."""
    return MemoryShare(n_slots=2, n_ctx=demand.n_ctx)
