"""The models of the store that requests name: each becomes a backend when one does."""

import math
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog
import trio

from inferd.backend.interface import StartFailedError
from inferd.config.served import StoreModel, StoreView, missing_models
from inferd.config.settings import Config, ConfigError, ModelsSettings
from inferd.errors import BackendNotReadyError
from inferd.fair_limiter import FairLimiter
from inferd.ipc.worker import Loading
from inferd.limits.residency import (
    MAX_HEADER_READS,
    MAX_OPENED_MODELS,
    STORE_LOOK_S,
)
from inferd.routing import ModelNames
from inferd.server.loading.store_looks import StoreLook, StoreLooks
from inferd.server.loading.store_state import (
    Backends,
    HeaderRead,
    Look,
    ModelFailure,
    StoreBackend,
)

log = structlog.get_logger("daemon")

UNREAD: Final = "(a model whose header is read)"
"""In place of a backend, for the queue: no backend has this name, and nothing there runs."""

CANNOT_BE_READ: Final = "what the store has of this model cannot be used; inferd doctor tells the operator why"

NOT_SEEN: Final = (
    "the model store cannot be looked at now; inferd doctor tells the operator why"
)

CRASHED: Final = "reading its header failed for a reason that the daemon's log has"

NOBODY: Final = -1
"""In place of a user, for headers that are read at the start."""


class StoreModels:
    """The models of the store that are served by name.

    The store is looked at again when a request names a model of it and the last look is
    ``STORE_LOOK_S`` ago. For a name that is not known there, the request waits for a look
    that begins after it, so that a name counts from the first request after it was brought.
    For a model that is not loaded it waits for a look as well, but no longer than
    ``STORE_LOOK_S`` if the header has been read; for one that is loaded it does not wait: of a
    name that was removed or replaced, that model answers until the look is over.

    A model becomes a backend when a request names it: a worker reads its header and ends.
    What cannot be read is refused with the reason: until its manifest changes if its files
    are at fault, else for ``breaker_open_s``.

    Args:
        config: which models are served, and the time of the circuit breaker.
        look: looks at the store.
        names: are told which models are served.
        on_loading: told the phases of header reads, with the model's name.

    Bounds:
        ``MAX_OPENED_MODELS`` backends, of which the one that was named longest ago is
        removed for another if it is not in use; ``MAX_HEADER_READS`` processes.
    """

    def __init__(
        self,
        config: Config,
        look: Look,
        names: ModelNames,
        on_loading: Callable[[str, Loading], None] = lambda *_: None,
    ) -> None:
        self._looks = StoreLooks(look, config.models)
        self._names = names
        self._on_loading = on_loading
        self._limits = config.limits
        self._backends: Backends
        self._nursery: trio.Nursery
        self._has_started = False
        self._opened: dict[str, StoreBackend] = {}
        self._failures: dict[str, ModelFailure] = {}
        self._openings: dict[str, HeaderRead] = {}
        self._limiter = FairLimiter(MAX_HEADER_READS)
        self._n_reading = 0

    @property
    def settings(self) -> ModelsSettings:
        """Which models are served."""
        return self._looks.last.settings

    @property
    def view(self) -> StoreView:
        """What the store has of them, as far as is known."""
        return self._looks.last.view

    def unread(self) -> list[str]:
        """List the models that are no backends yet."""
        return [
            name
            for name in self.view.served
            if name not in self._opened and self._names.stored_name(name) == name
        ]

    @property
    def lacks_named(self) -> bool:
        """Whether a model that the configuration names is no backend."""
        serve = self.settings.serve
        return not isinstance(serve, bool) and any(
            name not in self._opened and self._names.stored_name(name) == name
            for name in serve
        )

    # --- the start, and changes of the configuration ----------------------------------

    async def run(
        self,
        backends: Backends,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Look at the store and read headers as requests demand, until cancelled.

        Args:
            backends: those that serve.
            task_status: started once the models that the configuration names are read.

        Raises:
            ConfigError: one of them is missing.
            StartFailedError: one of them cannot be served.
        """
        self._backends = backends
        async with trio.open_nursery() as self._nursery:
            looked = await self._looks.with_settings(self.settings)
            for fault in missing_models(looked.settings, looked.view):
                raise ConfigError(fault)
            self._apply(looked)
            if faults := await self._open_named():
                raise StartFailedError("; ".join(faults))
            self._has_started = True
            task_status.started()
            await self._looks.run(self._apply)

    async def check(self, new: ModelsSettings) -> None:
        """Check that other settings could be served now; nothing changes.

        Raises:
            ConfigError: a model that they name is missing or cannot be used.
        """
        looked = await self._looks.with_settings(new)
        for fault in missing_models(new, looked.view):
            raise ConfigError(fault)

    async def change(self, new: ModelsSettings) -> list[str]:
        """Serve what the store has now with other settings.

        Returns:
            Reasons for which models that they name cannot be served.
        """
        try:
            looked = await self._looks.with_settings(new)
        except ConfigError as error:
            return [str(error)]
        self._apply(looked)
        return [*missing_models(new, looked.view), *await self._open_named()]

    def close_idle(self) -> None:
        """Forget the headers of what is not in use: there is other memory for it now."""
        self._failures.clear()
        for name, opened in [*self._opened.items()]:
            if self._backends.is_idle(opened.backend):
                self._close(name)

    def close_configured(self) -> None:
        """Make room for configured backends that have names or aliases of opened models."""
        for name in [*self._opened]:
            if self._served(name) is None:
                self._close(name)

    def _apply(self, looked: StoreLook) -> None:
        """Take over what a look has found."""
        before, view = self.view, looked.view
        for name, refused in view.refused.items():
            if before.refused.get(name) != refused:
                log.warning("models.refused", name=name, reason=refused.reason)
        if view.failure and view.failure != before.failure:
            log.warning("models.refused", name="", reason=view.failure)
        self._looks.take(looked)
        self._names.replace_stored([*view.served])
        for name, opened in [*self._opened.items()]:
            if (
                not self._has(name, opened.model)
                or opened.backend not in self._backends
            ):
                self._close(name)
        self._failures = {
            name: failure
            for name, failure in self._failures.items()
            if view.served.get(name) == failure.model
        }

    def _has(self, name: str, model: StoreModel) -> bool:
        """Return whether a name means a model with the same files and settings."""
        found = self._served(name)
        return found is not None and found.settings == model.settings

    def _served(self, name: str) -> StoreModel | None:
        """Return the model that a name means; ``None`` if it means none of the store."""
        is_configured = self._names.stored_name(name) is None
        return None if is_configured else self.view.served.get(name)

    async def _open_named(self) -> list[str]:
        """Read the headers of the models that the configuration names.

        Returns:
            Reasons for which some cannot be read.
        """
        faults: list[str] = []

        async def open_one(name: str, user: int) -> None:
            try:
                await self._open(name, user)
            except BackendNotReadyError as error:
                failure = self._failures.get(name)
                reason = error.message if failure is None else failure.text
                faults.append(f"models.serve: {name}: {reason}")

        if not isinstance(self.settings.serve, bool):
            async with trio.open_nursery() as nursery:
                for number, name in enumerate(self.unread()):
                    nursery.start_soon(open_one, name, NOBODY - number)
        return sorted(faults)

    # --- requests ---------------------------------------------------------------------

    def unopened(self, model: str | None) -> str | None:
        """Return the model that a request has to ``open`` first; ``None`` for none.

        Args:
            model: that the request names, if it names one.
        """
        serve, name = self.settings.serve, self._names.stored_name(model)
        if name is None or not (serve if isinstance(serve, bool) else name in serve):
            return None
        opened = self._opened.get(name)
        if opened is None or not (self._looks.is_recent or opened.backend.ready):
            return name
        if (
            not self._looks.is_recent
        ):  # for those who come later: what is loaded answers
            self._looks.order()
        self._touch(name)
        return None

    def _touch(self, name: str) -> None:
        """Note that a model was named, after all others."""
        if (opened := self._opened.pop(name, None)) is not None:
            self._opened[name] = opened

    async def open(self, name: str, user: int) -> None:
        """Make a model a backend; one that the store does not have is left alone.

        Args:
            name: of the model.
            user: who asks for it.

        Raises:
            BackendNotReadyError: it cannot be served.

        Cancellation: a header that is being read is read to its end.
        """
        is_known, is_read = name in self.view.served, name in self._opened
        await self._looks.wait(
            trio.current_time() - (STORE_LOOK_S if is_known else 0),
            at_most_s=STORE_LOOK_S if is_read else math.inf,
        )
        await self._open(name, user)
        self._touch(name)
        if self._served(name) is None:
            self._raise_refused(name)

    async def _open(self, name: str, user: int) -> None:
        """Make a model a backend, if it is in the store as far as is known."""
        while self._served(name) is not None and name not in self._opened:
            self._raise_failure(name)
            opening = self._openings.setdefault(name, HeaderRead())
            if user not in opening.users:
                opening.users.add(user)
                self._nursery.start_soon(self._read, name, user, opening)
            opening.n_waiting += 1
            try:
                await opening.is_over.wait()
            finally:
                opening.n_waiting -= 1
            if opening.reason:
                raise BackendNotReadyError(opening.reason)

    def _raise_refused(self, name: str) -> None:
        """Refuse a model that cannot be used, or of which nothing is known."""
        refused = self.view.refused.get(name)
        if refused is not None and not refused.is_missing:
            raise BackendNotReadyError(CANNOT_BE_READ)
        if self.view.failure:
            raise BackendNotReadyError(NOT_SEEN)

    def _raise_failure(self, name: str) -> None:
        failure = self._failures.get(name)
        if failure is None:
            return
        if failure.retry_at > trio.current_time():
            raise BackendNotReadyError(failure.reason)
        del self._failures[name]

    # --- headers ----------------------------------------------------------------------

    async def _read(self, name: str, user: int, opening: HeaderRead) -> None:
        """Read the header of a model for those who wait for it, when it is a user's turn."""
        async with self._limiter.acquire(user):
            if opening.has_begun:
                return
            opening.has_begun = True
            model = self._served(name)
            try:
                if opening.n_waiting and model is not None:
                    opening.reason = await self._add(name, model)
            finally:
                del self._openings[name]
                opening.is_over.set()

    async def _add(self, name: str, model: StoreModel) -> str:
        """Make a model a backend; return why it cannot be."""
        if not self._has_room():
            return f"{MAX_OPENED_MODELS} models of the store are in use already"
        broken = partial(self._refuse_broken, name, model)
        self._n_reading += 1
        try:
            loading = partial(self._on_loading, name)
            backend = await self._backends.add(model.settings, broken, loading)
        except StartFailedError as error:
            reason, is_broken = error.reason, error.is_broken_file
            self._fail(name, model, reason, text=str(error), is_broken=is_broken)
            return reason
        except Exception as bug:  # it must not end the requests of other models
            log.exception("models.crashed", name=name, bug=str(bug))
            self._fail(name, model, CRASHED, text="", is_broken=False)
            return CRASHED
        finally:
            self._n_reading -= 1
        self._opened[name] = StoreBackend(backend, model)
        if not self._has(name, model):  # it was removed or replaced meanwhile
            self._close(name)
        return ""

    def _has_room(self) -> bool:
        """Make room for one more model; return whether there is."""
        if len(self._opened) + self._n_reading < MAX_OPENED_MODELS:
            return True
        for name, opened in self._opened.items():
            if self._backends.is_idle(opened.backend):
                self._close(name)
                return True
        return False

    def _fail(
        self, name: str, model: StoreModel, reason: str, *, text: str, is_broken: bool
    ) -> None:
        """Refuse requests for a model, for good if its files are broken."""
        text = text or reason
        if self._has_started:  # else the start fails with it, and logs one line
            log.warning("models.refused", name=name, reason=text)
        pause_s = math.inf if is_broken else self._limits.breaker_open_s
        retry_at = trio.current_time() + pause_s
        self._failures[name] = ModelFailure(reason, text, model, retry_at)
        self._close(name)

    def _refuse_broken(self, name: str, model: StoreModel, reason: str) -> None:
        """Refuse requests for a model that broke later, unless another has its name by now."""
        opened = self._opened.get(name)
        if opened is not None and opened.model is model:
            self._fail(name, model, reason, text="", is_broken=True)

    def _close(self, name: str) -> None:
        """Make a model no backend any more; what has arrived for it is served."""
        opened = self._opened.pop(name, None)
        if opened is not None and opened.backend in self._backends:
            self._backends.remove(opened.backend)
