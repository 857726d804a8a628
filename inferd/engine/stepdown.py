"""Which variants of a library's CPU code crashed, and is another to be tried?

A variant is to blame where the worker dies of its own code between loading it and being
ready: the self-test is in there. It is not used again as long as the daemon lives. Where
all crash, none is to blame, and what kills them is: they are all forgiven, and the death
is one like any other. One that has been ready is never to blame: native code also aborts
where a reload finds no memory, and the next variant may be five times slower.
"""

import signal
from typing import Final

from inferd.engine.process import describe_exit
from inferd.ipc import Variant

CRASHES: Final = frozenset(
    describe_exit(-each)
    for each in (
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
    )
)
"""Deaths of a worker's own code; SIGKILL is ours, or the kernel's for want of memory."""


class StepDown:
    """Remembers the variants that crashed, of one backend.

    Bounds:
        One name for each variant that the library has.
    """

    def __init__(self) -> None:
        self._crashed: tuple[str, ...] = ()
        self._proved: frozenset[str] = frozenset()

    @property
    def crashed(self) -> tuple[str, ...]:
        """Those that are not to be used again, in the order they crashed."""
        return self._crashed

    def proved(self, variant: Variant | None) -> None:
        """Take note that a worker got ready with a variant, if it told of one."""
        if variant is not None:
            self._proved |= {variant.name}

    def died(self, reason: str, variant: Variant | None) -> str:
        """Take note of a death before the worker was ready.

        Args:
            reason: as ``describe_exit`` says it.
            variant: what it had loaded last, if anything.

        Returns:
            The variant that is to be tried at once; empty if there is none.
        """
        if variant is None or reason not in CRASHES:
            return ""
        if variant.lower and variant.name in self._proved:
            return ""
        self._crashed = (*self._crashed, variant.name) if variant.lower else ()
        return variant.lower
