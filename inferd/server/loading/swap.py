"""Replace backends by others while requests are served."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import structlog

from inferd.backend.interface import Backend, StartFailedError
from inferd.config.served import NOTHING_SERVED, StoreView
from inferd.config.settings import (
    BackendSettings,
    ConfigError,
    ModelsSettings,
    is_on_demand,
    keep_alive_of,
)
from inferd.engine.on_demand import DemandEngine
from inferd.errors import BackendNotReadyError
from inferd.ipc.worker import Loading
from inferd.memory.coordinator import MemoryCoordinator
from inferd.server.loading.changes import (
    Candidate,
    Change,
    Served,
    Wanted,
    plan_changes,
)
from inferd.server.loading.headers import (
    EngineMaker,
    Entry,
    HeaderReader,
    Replacement,
)
from inferd.server.loading.loader import ModelLoader
from inferd.server.loading.model import DemandModel, Held
from inferd.server.loading.store_state import Look

log = structlog.get_logger("daemon")

NO_CANDIDATES: Final[Mapping[str, Candidate]] = MappingProxyType({})

OnChange = Callable[[Sequence[BackendSettings]], None]
"""Told of the tables in force each time that one changes."""


async def _see_nothing(_models: ModelsSettings, _before: StoreView) -> StoreView:
    return NOTHING_SERVED


class SharedModels(NamedTuple):
    """What knows the models that share the memory."""

    loader: ModelLoader
    coordinator: MemoryCoordinator | None = None
    """Of the memory of all models; ``None`` if none has a worker."""
    maker: EngineMaker | None = None
    """``None`` if the backends cannot change."""
    served: Mapping[str, Candidate] = NO_CANDIDATES
    """What serves the backends of the start that have workers, by their names."""
    look: Look = _see_nothing
    """Looks at the model store."""

    def open(self, queue: Held) -> None:
        """Share out the memory, once all backends have told what they need."""
        if self.coordinator is not None:
            self.coordinator.reserve = self.loader.reserve
            self.loader.forget = self.coordinator.forget
            self.loader.open(
                self.coordinator.budget_bytes, self.coordinator.bytes_of, queue
            )


class SwapResult(NamedTuple):
    """What has become of a changed configuration."""

    in_force: Sequence[BackendSettings]
    failures: Sequence[str]
    """Reasons for which backends are not as the new configuration has them."""


class BackendSwap:
    """Swap of backends, one change of the configuration at a time.

    A backend that differs is loaded beside the one that it replaces, which serves until
    then, if both fit into memory. Otherwise the old one takes no more requests, ends those
    it has, and is unloaded first; if the new one does not load then, the old one is loaded
    again. One that is added is treated likewise, if those that are removed take its memory.
    No request of an old one fails.

    Args:
        models: what knows those that share the memory.
        backends: those that serve, in the order of the configuration; changed in place.
        configured: their tables.
        on_change: told of the tables in force.
    """

    def __init__(
        self,
        models: SharedModels,
        backends: list[Backend],
        configured: Iterable[BackendSettings],
        on_change: OnChange = lambda _: None,
    ) -> None:
        self._loader, self._coordinator, self._maker, served, _ = models
        self._backends = backends
        self._on_change = on_change
        self._entries = {  # by the keys of backends, which are names at the start
            each.name: Entry(each, served.get(each.name)) for each in configured
        }
        self._added: dict[str, Backend] = {}  # those of the store, by key
        self._reader = (
            None
            if self._maker is None or self._coordinator is None
            else HeaderReader(self._maker, self._coordinator)
        )

    async def change(self, new: Sequence[BackendSettings]) -> SwapResult:
        """Replace the backends that differ.

        Backends of kinds without a worker stay as they are.

        Raises:
            ConfigError: a model cannot be found or served; nothing has changed.
        """
        if self._maker is None or self._reader is None:
            return SwapResult([each.configured for each in self._entries.values()], [])
        plan = plan_changes(
            [self._served(each) for each in self._configured()],
            [Wanted(each, self._maker.candidates(each)) for each in new],
        )
        kept = dict(plan.kept)
        replacements = await self._read_all(self._reader, plan.changes, kept)
        for key, configured in kept.items():
            self._entries[key] = self._entries[key]._replace(configured=configured)
        leaving = [each for each in self._configured() if each.key in plan.removed]
        failures: list[str] = []
        for each in replacements:
            try:
                await self._bring(each, leaving)
            except BackendNotReadyError as error:
                failures.append(f"backend {each.name}: {error.message}")
        for backend in [] if failures else leaving:
            self._remove(backend)
        order = {each.name: at for at, each in enumerate(new)}
        self._backends.sort(key=lambda each: order.get(each.name, len(order)))
        return SwapResult(self._in_force(), failures)

    def _served(self, backend: Backend) -> Served:
        entry, loader = self._entries[backend.key], self._loader
        is_absent = not is_on_demand(entry.configured) and loader.knows(backend.key)
        is_absent = is_absent and not loader.is_loaded(backend.key)
        is_serving = backend.unavailable is None and not is_absent
        return Served(backend.key, *entry, is_serving=is_serving)

    def _in_force(self) -> list[BackendSettings]:
        return [self._entries[each.key].configured for each in self._configured()]

    def _configured(self) -> list[Backend]:
        """List the backends that are in the configuration."""
        return [each for each in self._backends if each.key not in self._added]

    # --- models of the store ------------------------------------------------------------

    async def add(
        self,
        settings: BackendSettings,
        on_broken: Callable[[str], None],
        on_loading: Callable[[Loading], None],
    ) -> Backend:
        """Add a backend that is loaded on demand, and stays at a change of the configuration.

        Args:
            settings: with the paths of its files.
            on_broken: called with the reason when a file of it turns out to be broken later.
            on_loading: called with the phases in which its header is read.

        Raises:
            StartFailedError: it cannot be served.
        """
        if self._maker is None or self._reader is None:
            raise StartFailedError(f"backend {settings.name} cannot be loaded later")
        candidate = self._maker.inspect(settings)
        beside = self._beside()
        added = await self._reader.read_one(settings, candidate, beside, on_loading)
        self._begin(added).on_broken = on_broken
        self._added[added.engine.key] = added.engine
        self._place(added, [])
        return added.engine

    def remove(self, backend: Backend) -> None:
        """Remove a backend that was added; the requests that have arrived are served."""
        self._remove(backend)
        del self._added[backend.key]

    def is_idle(self, backend: Backend) -> bool:
        """Return whether a backend takes no memory, and nobody has asked for it."""
        return self._loader.is_idle(backend.key)

    def __contains__(self, backend: Backend) -> bool:
        """Return whether a backend serves."""
        return backend in self._backends

    # --- the headers of all, before anything changes ------------------------------------

    async def _read_all(
        self,
        reader: HeaderReader,
        changes: Iterable[Change],
        kept: dict[str, BackendSettings],
    ) -> list[Replacement]:
        """Read the headers of models, and plan their memory; nothing changes if one fails.

        Those that take less memory than what they replace come first.

        Args:
            reader: reads them.
            changes: what needs another engine.
            kept: the tables of the backends that stay; one is added if the same model is
                chosen again from a ladder that has changed.
        """
        beside = {key for key, each in kept.items() if not is_on_demand(each)}
        read: list[Replacement] = []
        try:
            for wanted, old in changes:
                candidate, choice = await reader.choose(wanted, beside)
                if choice and old is not None and self._serves(old, candidate):
                    kept[old] = wanted.configured
                    reader.note_choice(wanted.configured.name, choice)
                else:
                    each = await reader.read(wanted.configured, candidate, beside)
                    each.old, each.choice = self._find(old), choice
                    read.append(each)
                    if each.is_kept_loaded:
                        beside.add(each.engine.key)
        except BaseException:
            reader.forget(read)
            raise
        return sorted(read, key=lambda each: each.n_bytes - self._bytes_of(each.old))

    def _serves(self, key: str, candidate: Candidate) -> bool:
        backend, was = self._find(key), self._entries[key].candidate
        is_same = was is not None and was.is_same(candidate)
        return is_same and backend is not None and self._served(backend).is_serving

    def _find(self, key: str | None) -> Backend | None:
        return next((each for each in self._backends if each.key == key), None)

    def _bytes_of(self, backend: Backend | None) -> int:
        if backend is None or self._coordinator is None:
            return 0
        return self._coordinator.bytes_of(backend.key)

    # --- one backend --------------------------------------------------------------------

    async def _bring(self, new: Replacement, leaving: list[Backend]) -> None:
        """Put a backend in the place of another, or beside all if there is no other.

        Args:
            new: what is to serve.
            leaving: backends that are to be removed in the end; those that have to make
                room before are taken out.

        Raises:
            BackendNotReadyError: its model could not be loaded.
        """
        loader, old = self._loader, new.old
        self._begin(new)
        try:
            gone = self._in_the_way(new, leaving)
            is_beside = not gone and (new.is_kept_loaded or self._is_loaded(old))
            if is_beside:
                await loader.load(new.engine.key)
        except BaseException:
            loader.retire(new.engine.key)
            if old is None or old.ready:  # the death of the new one concerns no request
                loader.observer.unloaded(new.name)
            raise
        gone = gone or ([] if old is None else [old])
        leaving[:] = [each for each in leaving if each not in gone]
        if is_beside or not new.is_kept_loaded:
            self._place(new, gone)
        else:
            await self._load_instead(new, gone)
        if new.is_kept_loaded:
            loader.pin(new.engine.key)

    async def _load_instead(self, new: Replacement, gone: Sequence[Backend]) -> None:
        """Load a model once those that have to be gone before have ended their requests."""
        before = [self._entries[each.key] for each in gone]
        self._place(new, gone)
        try:
            await self._loader.load(new.engine.key)
        except BackendNotReadyError:
            await self._restore(new.engine, before)
            raise

    def _begin(self, new: Replacement) -> DemandModel:
        """Have the loader know an engine, which is not loaded yet."""
        keep_alive_s = keep_alive_of(new.entry.configured)
        model = DemandModel(new.engine, keep_alive_s, new.engine.limits)
        self._loader.begin(model, new.n_bytes)
        return model

    def _is_loaded(self, backend: Backend | None) -> bool:
        return backend is not None and self._loader.is_loaded(backend.key)

    def _in_the_way(
        self, new: Replacement, leaving: Iterable[Backend]
    ) -> list[Backend]:
        """List those that have to be gone before a model can be loaded, the old one first.

        Raises:
            BackendNotReadyError: it does not fit even without all of them.
        """
        key, old = new.engine.key, new.old
        loaded = [old.key] if old is not None and self._is_loaded(old) else []
        if self._loader.fits(key, beside=loaded):
            return []
        gone = [] if old is None else [old]
        others = iter(leaving)
        while not self._loader.fits(key, without=[each.key for each in gone]):
            if (other := next(others, None)) is None:
                raise BackendNotReadyError(self._loader.lack(key) or "it has no room")
            gone.append(other)
        return gone

    async def _restore(self, failed: DemandEngine, before: Sequence[Entry]) -> None:
        """Serve again what was there before a model that could not be loaded."""
        gone: list[Backend] = [failed]
        for entry in before:
            try:
                await self._serve_again(entry, gone)
            except (ConfigError, BackendNotReadyError) as error:
                name = entry.configured.name
                log.warning("reload.not_undone", backend=name, reason=str(error))

    async def _serve_again(self, entry: Entry, gone: list[Backend]) -> None:
        """Load what was there before, if its files are the same now.

        Args:
            entry: what it was.
            gone: what it replaces; emptied.

        Raises:
            ConfigError, BackendNotReadyError: it cannot be loaded any more.
        """
        candidate = entry.candidate
        if self._reader is None or candidate is None or not self._is_there(candidate):
            return
        again = await self._reader.read(entry.configured, candidate, self._beside())
        self._begin(again)
        self._place(again, gone)
        gone.clear()
        if again.is_kept_loaded:
            await self._loader.load(again.engine.key)
            self._loader.pin(again.engine.key)

    def _is_there(self, candidate: Candidate) -> bool:
        """Return whether the files of what served before are the same now."""
        if self._maker is None:
            return False
        return self._maker.inspect(candidate.settings).is_same(candidate)

    def _beside(self) -> list[str]:
        """List the backends that stay loaded."""
        return [
            each.key
            for each in self._configured()
            if not is_on_demand(self._entries[each.key].configured)
            and self._loader.is_loaded(each.key)
        ]

    def _place(self, new: Replacement, gone: Sequence[Backend]) -> None:
        """Send requests that come from now on to a new engine instead of some others."""
        engine, places = new.engine, [self._backends.index(each) for each in gone]
        self._backends.insert(places[0] if places else len(self._backends), engine)
        self._entries[engine.key] = new.entry
        for each in gone:
            self._remove(each)
        if self._reader is not None:
            self._reader.note_choice(new.name, new.choice)
        if not self._is_loaded(engine):
            engine.announce()
        self._on_change(self._in_force())

    def _remove(self, backend: Backend) -> None:
        """Send no more requests to a backend; it ends those that it has."""
        self._backends.remove(backend)
        self._entries.pop(backend.key)
        self._loader.retire(backend.key)
        if all(each.name != backend.name for each in self._backends):
            self._loader.observer.removed(backend.name)
