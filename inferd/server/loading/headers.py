"""Read the headers of the models of a changed configuration, before anything changes."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from inferd.backend.interface import Backend, StartFailedError
from inferd.config.settings import BackendSettings, ConfigError, is_on_demand
from inferd.engine.on_demand import DemandEngine
from inferd.ipc.worker import Loading
from inferd.memory.coordinator import MemoryCoordinator
from inferd.memory.ladder import Rung, choose_rungs
from inferd.memory.plan import InsufficientMemoryError, MemoryDemand
from inferd.server.loading.changes import Candidate, Wanted


class EngineMaker(Protocol):
    """Makes the engines of a changed configuration."""

    def candidates(self, settings: BackendSettings) -> Sequence[Candidate]:
        """List what could serve a table; raises ``ConfigError``."""

    def inspect(self, located: BackendSettings) -> Candidate:
        """Note what the files of settings with paths are like now."""

    def make_later(self, candidate: Candidate, key: str) -> DemandEngine:
        """Make an engine with a key."""

    def note_choice(self, backend: str, choice: str) -> None:
        """Have the status tell which model of its ladder a backend has; none if it has none."""


class Entry(NamedTuple):
    """What serves a backend."""

    configured: BackendSettings
    candidate: Candidate | None


@dataclass
class Replacement:
    """An engine whose headers have been read."""

    entry: Entry
    engine: DemandEngine
    n_bytes: int
    old: Backend | None = None
    choice: str = ""
    """Which model of a ladder it has, and why."""

    @property
    def name(self) -> str:
        """Of the backend."""
        return self.entry.configured.name

    @property
    def is_kept_loaded(self) -> bool:
        """Whether it is not loaded on demand."""
        return not is_on_demand(self.entry.configured)


class HeaderReader:
    """Reader of the headers of models, which plans their memory and loads nothing.

    Args:
        maker: makes their engines.
        memory: plans their memory beside what is loaded.
    """

    def __init__(self, maker: EngineMaker, memory: MemoryCoordinator) -> None:
        self._maker = maker
        self._memory = memory
        self._numbers = itertools.count(2)

    async def choose(
        self, wanted: Wanted, beside: Iterable[str]
    ) -> tuple[Candidate, str]:
        """Choose the first model that fits into memory, and say why; no reason without a ladder.

        Args:
            wanted: the table, with what could serve it.
            beside: the keys of those that stay loaded.

        Raises:
            ConfigError: none fits, or a file cannot be served.
        """
        if not wanted.candidates[0].rung:
            return wanted.candidates[0], ""
        name, refusal = wanted.configured.name, ""
        rungs: list[Rung] = []
        for candidate in wanted.candidates:
            demand = await _read_headers(self._maker.make_later(candidate, name))
            if demand is None:
                return candidate, ""
            rungs.append(Rung(candidate.rung, demand))
            try:
                budget = self._memory.budget_beside(beside)
                choice = choose_rungs({name: rungs}, {}, budget)[name]
            except InsufficientMemoryError as error:
                refusal = str(error)
            else:
                n_rungs = len(wanted.candidates)
                return candidate, str(choice._replace(n_rungs=n_rungs))
        raise ConfigError(refusal)

    async def read(
        self, configured: BackendSettings, candidate: Candidate, beside: Iterable[str]
    ) -> Replacement:
        """Read the headers of a model, and plan its memory beside others.

        Raises:
            ConfigError: it cannot be served, or has no room.
        """
        try:
            return await self.read_one(configured, candidate, beside)
        except StartFailedError as error:
            raise ConfigError(str(error)) from error

    async def read_one(
        self,
        configured: BackendSettings,
        candidate: Candidate,
        beside: Iterable[str],
        on_loading: Callable[[Loading], None] = lambda _: None,
    ) -> Replacement:
        """Do what ``read`` does, tell the phases, and whether the file is at fault.

        Raises:
            StartFailedError: it cannot be served, or has no room.
        """
        key = f"{configured.name}#{next(self._numbers)}"
        engine = self._maker.make_later(candidate, key)
        self._memory.expect(
            key,
            beside,
            shown=configured.name,
            is_on_demand=is_on_demand(configured),
        )
        try:
            await engine.read_headers(on_loading)
            await engine.plan_memory()
        except BaseException:
            self._memory.forget(key)
            raise
        n_bytes = self._memory.bytes_of(key)
        return Replacement(Entry(configured, candidate), engine, n_bytes)

    def note_choice(self, backend: str, choice: str) -> None:
        """Have the status tell which model of its ladder a backend has, or that it has none."""
        self._maker.note_choice(backend, choice)

    def forget(self, replacements: Iterable[Replacement]) -> None:
        """Forget the plans of what is not to be loaded."""
        for each in replacements:
            self._memory.forget(each.engine.key)


async def _read_headers(engine: DemandEngine) -> MemoryDemand | None:
    try:
        return await engine.read_headers()
    except StartFailedError as error:
        raise ConfigError(str(error)) from error
