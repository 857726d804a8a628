"""Reloads as a task of the daemon: one at a time, for all who order one."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog
import trio

from inferd.config.settings import ConfigError
from inferd.server.admin.reload import ReloadError, ReloadResult

log = structlog.get_logger("daemon")

DRAINING: Final = (
    "the daemon is draining and reads no configuration any more; the next one will"
)


class ReloadObserver(Protocol):
    """The service manager, which waits for the end of a reload."""

    def reloading(self) -> None:
        """A reload has begun."""

    async def extend_timeout(self) -> None:
        """Allow the reload more time until cancelled."""

    def ready(self) -> None:
        """The reload is over, whether or not it failed."""


class _Order:
    """A reload that has not begun, or is under way."""

    def __init__(self) -> None:
        self._over = trio.Event()
        self._outcome: ReloadResult | str = DRAINING

    def end(self, outcome: ReloadResult | str) -> None:
        """Tell the outcome, or the reason of a failure, to all who wait."""
        self._outcome = outcome
        self._over.set()

    async def wait(self) -> ReloadResult:
        """Wait until it is over; raise ``ReloadError`` if it failed."""
        await self._over.wait()
        if isinstance(self._outcome, str):
            raise ReloadError(self._outcome)
        return self._outcome


class Reloader:
    """Runner of reloads, one at a time.

    An order while one is under way is for the next, as are all others until that begins: it
    reads the file once more, since the first may have read it too early. So at most one is
    under way and one waits, however many are ordered. A client that hangs up cancels none.

    Args:
        reload: reads the configuration and applies it; raises ``ConfigError``.
        observer: told of the beginning and the end of each.
    """

    def __init__(
        self, reload: Callable[[], Awaitable[ReloadResult]], observer: ReloadObserver
    ) -> None:
        self._reload = reload
        self._observer = observer
        self._is_open = True
        self._ordered = trio.Event()
        self._next: _Order | None = None
        self._n_waiting = 0
        self._has_left = trio.lowlevel.ParkingLot()

    def order(self) -> None:
        """Order a reload and wait for nothing; the log has its outcome."""
        if self._is_open:
            self._order()

    async def reload(self) -> ReloadResult:
        """Order a reload and wait for its end.

        Raises:
            ReloadError: it failed, or the daemon drains.

        Cancellation: safe, and cancels no reload.
        """
        if not self._is_open:
            raise ReloadError(DRAINING)
        order = self._order()
        self._n_waiting += 1
        try:
            return await order.wait()
        finally:
            self._n_waiting -= 1
            self._has_left.unpark_all()

    def close(self) -> None:
        """Begin no more reloads; one that is under way goes on as long as ``run`` does."""
        self._is_open = False
        if self._next is not None:
            self._next.end(DRAINING)
            self._next = None

    async def wait_told(self) -> None:
        """Wait until all who waited know the outcome, after ``close`` and the end of ``run``."""
        while self._n_waiting:
            await self._has_left.park()

    async def run(self) -> None:
        """Carry out what is ordered until cancelled."""
        while True:
            await self._ordered.wait()
            self._ordered = trio.Event()
            order, self._next = self._next, None
            if order is not None:
                await self._carry_out(order)

    def _order(self) -> _Order:
        order = self._next = self._next or _Order()
        self._ordered.set()
        return order

    async def _carry_out(self, order: _Order) -> None:
        outcome: ReloadResult | str = DRAINING
        self._observer.reloading()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._observer.extend_timeout)
                outcome = await self._attempt()
                nursery.cancel_scope.cancel()
        finally:
            if self._is_open:
                self._observer.ready()
            order.end(outcome)

    async def _attempt(self) -> ReloadResult | str:
        """Reload; return the reason if it fails, for whatever reason."""
        try:
            return await self._reload()
        except ConfigError as error:
            log.warning("config.refused", reason=str(error))
            return str(error)
        except Exception as bug:
            log.exception("reload.crashed", bug=str(bug))
            return (
                f"a bug in the daemon: {type(bug).__name__}: {bug}; its log has more, and "
                f"inferd status says what is served"
            )
