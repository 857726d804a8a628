"""Replace backends by others while requests are served."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import trio
from msgspec.structs import replace

from inferd.backend.interface import Backend, StartFailedError
from inferd.config.settings import (
    BackendSettings,
    ConfigError,
    is_on_demand,
    keep_alive_of,
)
from inferd.engine.on_demand import DemandEngine
from inferd.errors import BackendNotReadyError
from inferd.memory.coordinator import MemoryCoordinator
from inferd.server.loading.loader import Held, ModelLoader
from inferd.server.loading.model import DemandModel

MakeEngine = Callable[[BackendSettings, str], DemandEngine | None]
"""Makes an engine with a key, or none if its kind has no worker; raises ``ConfigError``."""


class SharedModels(NamedTuple):
    """What knows the models that share the memory."""

    loader: ModelLoader
    coordinator: MemoryCoordinator | None = None
    """Of the memory of all models; ``None`` if none has a worker."""
    make: MakeEngine | None = None
    """Makes the engines of a changed configuration; ``None`` if it cannot change."""

    def open(self, queue: Held) -> None:
        """Share out the memory, once all backends have told what they need."""
        if self.coordinator is not None:
            self.loader.open(
                self.coordinator.budget_bytes, self.coordinator.bytes_of, queue
            )


class SwapResult(NamedTuple):
    """What has become of a changed configuration."""

    in_force: Sequence[BackendSettings]
    failures: Sequence[str]
    """Reasons for which backends are not as the new configuration has them."""


class _Replacement(NamedTuple):
    settings: BackendSettings
    engine: DemandEngine
    model: DemandModel
    n_bytes: int


class BackendSwap:
    """Swap of backends, one change of the configuration at a time.

    A backend that differs is loaded beside the one that it replaces, which serves until
    then, if both fit into memory. Otherwise the old one takes no more requests, ends those
    it has, and is unloaded first. No request fails in either case.

    Args:
        models: what knows those that share the memory.
        backends: those that serve, in the order of the configuration; changed in place.
        nursery: runs the new engines.
    """

    def __init__(
        self, models: SharedModels, backends: list[Backend], nursery: trio.Nursery
    ) -> None:
        self._loader, self._coordinator, self._make = models
        self._backends = backends
        self._nursery = nursery
        self._numbers = itertools.count(2)

    async def change(
        self, running: Sequence[BackendSettings], new: Sequence[BackendSettings]
    ) -> SwapResult:
        """Replace the backends that differ.

        Backends of kinds without a worker stay as they are.

        Raises:
            ConfigError: a model cannot be found or served; nothing has changed.
        """
        before = {each.name: each for each in running}
        fresh = [each for each in new if _differs(before.get(each.name), each)]
        changed = {each.name for each in fresh}
        kept = [each for each in new if each.name not in changed]
        replacements = await self._read_all(fresh, kept)
        swappable = {each.settings.name for each in replacements}
        in_force = [
            before.get(each.name) if each.name in changed - swappable else each
            for each in new
        ]
        wanted = {each.name for each in new}
        in_force += [each for each in running if each.name not in wanted]
        present = {each.name: each for each in in_force if each is not None}
        failures: list[str] = []
        for each in replacements:
            try:
                await self._bring(each, self._find(each.settings.name))
            except BackendNotReadyError as error:
                name = each.settings.name
                failures.append(f"backend {name}: {error.message}")
                if self._find(name) is not each.engine:  # another reload tries again
                    present = _put_back(present, before, name)
        for backend in [] if failures else [*self._backends]:
            if backend.name not in wanted and self._can_retire(backend):
                self._backends.remove(backend)
                self._loader.retire(backend.key)
                present.pop(backend.name, None)
        order = {name: at for at, name in enumerate(present)}
        self._backends.sort(key=lambda each: order.get(each.name, len(order)))
        return SwapResult([*present.values()], failures)

    # --- the headers of all, before anything changes ------------------------------------

    async def _read_all(
        self, fresh: Iterable[BackendSettings], kept: Iterable[BackendSettings]
    ) -> list[_Replacement]:
        """Read the headers of models, and plan their memory; nothing changes if one fails."""
        names = {each.name for each in kept if not is_on_demand(each)}
        beside = {each.key for each in self._backends if each.name in names}
        read: list[_Replacement] = []
        try:
            for settings in fresh:
                if (each := await self._read(settings, beside)) is None:
                    continue
                read.append(each)
                if not is_on_demand(settings):
                    beside.add(each.engine.key)
        except BaseException:
            for each in read:
                self._drop(each)
            raise
        return read

    async def _read(
        self, settings: BackendSettings, beside: Iterable[str]
    ) -> _Replacement | None:
        key = f"{settings.name}#{next(self._numbers)}"
        engine = None if self._make is None else self._make(settings, key)
        if engine is None or self._coordinator is None:
            return None
        self._coordinator.expect(key, beside)
        model = DemandModel(engine, keep_alive_of(settings), engine.limits)
        has_read = trio.Event()
        faults: list[str] = []

        async def live() -> None:
            try:
                with model.life:
                    await engine.run(has_read.set)
            except StartFailedError as error:
                faults.append(str(error))
            has_read.set()

        self._nursery.start_soon(live)
        await has_read.wait()
        if faults:
            self._coordinator.forget(key)
            raise ConfigError(faults[0])
        return _Replacement(settings, engine, model, self._coordinator.bytes_of(key))

    def _drop(self, replacement: _Replacement) -> None:
        replacement.model.life.cancel()
        if self._coordinator is not None:
            self._coordinator.forget(replacement.engine.key)

    # --- one backend --------------------------------------------------------------------

    def _find(self, name: str) -> Backend | None:
        return next((each for each in self._backends if each.name == name), None)

    def _can_retire(self, backend: Backend) -> bool:
        return self._loader.knows(backend.key)

    async def _bring(self, new: _Replacement, old: Backend | None) -> None:
        """Put a backend in the place of another, or beside all if there is no other.

        Raises:
            BackendNotReadyError: its model could not be loaded.
        """
        engine, loader = new.engine, self._loader
        is_kept = not is_on_demand(new.settings)
        loader.begin(new.model, new.n_bytes)
        if old is None:
            serves_first = False
        else:
            serves_first = loader.is_loaded(old.key) and loader.fits_beside(
                engine.key, old.key
            )
        if serves_first or (old is None and is_kept):
            await self._load_or_retire(engine, old)
            self._replace(old, engine)
        else:
            self._replace(old, engine)
            if is_kept:
                await loader.load(engine.key)
        if is_kept:
            loader.pin(engine.key)

    async def _load_or_retire(self, engine: DemandEngine, old: Backend | None) -> None:
        try:
            await self._loader.load(engine.key)
        except BaseException:
            self._loader.retire(engine.key)
            if old is None or old.ready:  # the death of the new one concerns no request
                self._loader.observer.unloaded(engine.name)
            raise

    def _replace(self, old: Backend | None, engine: DemandEngine) -> None:
        """Send requests that come from now on to another engine."""
        if old is None:
            self._backends.append(engine)
        else:
            self._backends[self._backends.index(old)] = engine
            self._loader.retire(old.key)


def _put_back(
    present: Mapping[str, BackendSettings],
    before: Mapping[str, BackendSettings],
    name: str,
) -> dict[str, BackendSettings]:
    """Give a backend the settings that it had before, or remove it if it had none."""
    back = {
        key: before.get(key) if key == name else each for key, each in present.items()
    }
    return {key: each for key, each in back.items() if each is not None}


def _differs(old: BackendSettings | None, new: BackendSettings) -> bool:
    """Tell whether settings differ in more than names, which need no other engine."""
    return old is None or replace(old, aliases=()) != replace(new, aliases=())
