"""Fallback between the CPU variants of a library after crashes.

A variant is blamed if the worker crashes in its own code while it opens the variant to ask
for its score, or between loading it and being ready, which includes the self-test. It is not used again while the daemon runs. If
all variants crash, none of them is the cause: the list is cleared, and the death counts as
any other. A variant with which a worker was once ready is never blamed: native code also
aborts if a reload finds no memory, and the next variant may be five times slower.
"""

import signal
from typing import Final

from inferd.engine.supervisor.process import describe_exit
from inferd.ipc.worker import CpuVariant

CRASH_REASONS: Final = frozenset(
    describe_exit(-number)
    for number in (
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
    )
)
"""Deaths by the worker's own code; SIGKILL comes from the daemon, or from the kernel for
want of memory."""


class VariantFallback:
    """The variants that crashed, of one backend.

    Bounds:
        One name for each variant that the library has.
    """

    def __init__(self) -> None:
        self._crashed: tuple[str, ...] = ()
        self._has_been_ready: frozenset[str] = frozenset()

    @property
    def crashed(self) -> tuple[str, ...]:
        """The variants that are not to be used again, in the order of their crashes."""
        return self._crashed

    def got_ready(self, variant: CpuVariant | None) -> None:
        """Note that a worker became ready with a variant, if it reported one."""
        if variant is not None:
            self._has_been_ready |= {variant.name}

    def died(self, reason: str, variant: CpuVariant | None) -> str:
        """Note a death before the worker was ready.

        Args:
            reason: as ``describe_exit`` describes it.
            variant: the last one that the worker had opened or loaded, if any.

        Returns:
            The variant to try at once; empty if there is none.
        """
        if variant is None or reason not in CRASH_REASONS:
            return ""
        if variant.fallback and variant.name in self._has_been_ready:
            return ""
        self._crashed = (*self._crashed, variant.name) if variant.fallback else ()
        return variant.fallback
