"""Looks at the model store: how often, and who waits for one."""

import math
from collections.abc import Callable
from typing import NamedTuple

import structlog
import trio

from inferd.config.served import NOTHING_SERVED, StoreView
from inferd.config.settings import ConfigError, ModelsSettings
from inferd.limits.residency import STORE_LOOK_S
from inferd.server.loading.store_state import Look

log = structlog.get_logger("daemon")


class StoreLook(NamedTuple):
    """What a look has found that began at some time."""

    settings: ModelsSettings
    view: StoreView
    at: float


class StoreLooks:
    """Looks at the store, one at a time, at most one in ``STORE_LOOK_S`` for requests.

    Args:
        look: looks at the store.
        settings: which models are served.
    """

    def __init__(self, look: Look, settings: ModelsSettings) -> None:
        self._look = look
        self.last = StoreLook(settings, NOTHING_SERVED, -math.inf)
        """The last look that counts."""
        self._began_at: float | None = None
        self._wanted = trio.Event()
        self._is_over = trio.Event()

    @property
    def is_recent(self) -> bool:
        """Whether no other look is due."""
        return self.last.at + STORE_LOOK_S > trio.current_time()

    async def with_settings(self, settings: ModelsSettings) -> StoreLook:
        """Look at the store at once, perhaps with other settings; nothing changes.

        Raises:
            ConfigError: the look failed, and none was made with these settings before.
        """
        at, last = trio.current_time(), self.last
        if not settings.serve:
            return StoreLook(settings, NOTHING_SERVED, at)
        is_same = settings == last.settings
        view = await self._look(settings, last.view if is_same else NOTHING_SERVED)
        if view.failure and not is_same:
            raise ConfigError(f"models.serve: {view.failure}")
        if view.failure and self.last is not last:  # a later look knows more
            return self.last
        return StoreLook(settings, view, at)

    def take(self, look: StoreLook) -> None:
        """Make a look the last one that counts."""
        self.last = look
        self._is_over.set()
        self._is_over = trio.Event()

    def order(self) -> None:
        """Have the store looked at once that is due."""
        self._wanted.set()

    async def wait(self, since: float, *, at_most_s: float) -> None:
        """Wait until a look is over that began at some time or later; order one if need be.

        Args:
            since: on trio's clock.
            at_most_s: seconds after the beginning of the look that is under way, or from
                now on, after which to wait no longer.
        """
        began_at = trio.current_time() if self._began_at is None else self._began_at
        with trio.move_on_at(began_at + at_most_s):
            while self.last.at < since:
                self.order()
                await self._is_over.wait()

    async def run(self, on_look: Callable[[StoreLook], None]) -> None:
        """Look at the store whenever that is ordered, until cancelled.

        Args:
            on_look: called with what each look has found, and takes it.
        """
        while True:
            await self._wanted.wait()
            await trio.sleep_until(self.last.at + STORE_LOOK_S)
            self._wanted = trio.Event()
            before, self._began_at = self.last, trio.current_time()
            look = before._replace(at=self._began_at)
            try:
                view = await self._look(before.settings, before.view)
                look = look._replace(view=view)
            except Exception as bug:  # it must not end the requests of all models
                log.exception("models.crashed", name="", bug=str(bug))
            self._began_at = None
            if self.last is before:  # else a change of the configuration has looked
                on_look(look)
