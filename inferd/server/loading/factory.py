"""Make the backends of a configuration, at the start and for a changed one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferd.backend.interface import Backend
from inferd.config.kinds.kind import InDaemon, InWorker
from inferd.config.kinds.registry import KindRegistry
from inferd.config.load import locate_model
from inferd.config.settings import (
    BackendSettings,
    Config,
    is_on_demand,
    keep_alive_of,
)
from inferd.engine.engine import Engine
from inferd.engine.in_daemon import make_in_daemon
from inferd.engine.on_demand import DemandEngine
from inferd.engine.supervisor.spawn import SpawnedProcess
from inferd.memory.coordinator import MemoryCoordinator
from inferd.server.capacity import worker_start
from inferd.server.loading.changes import Candidate, FileState
from inferd.server.loading.loader import ModelLoader
from inferd.server.telemetry.status import StatusBoard


@dataclass(frozen=True)
class BackendFactory:
    """Maker of the backends of one daemon."""

    config: Config
    board: StatusBoard
    coordinator: MemoryCoordinator
    loader: ModelLoader
    kinds: KindRegistry

    def candidates(self, settings: BackendSettings) -> Sequence[Candidate]:
        """List what could serve a table: one, or the models of its ladder.

        None if its kind has no worker: that needs a restart.

        Raises:
            ConfigError: a model cannot be found.
        """
        kind = self.kinds.of(settings)
        if isinstance(kind.served_by, InDaemon):
            return ()
        if rungs := kind.rungs(settings):
            return [self._locate(each)._replace(rung=_model(each)) for each in rungs]
        return [self._locate(settings)]

    def _locate(self, settings: BackendSettings) -> Candidate:
        return self.inspect(locate_model(settings, self.kinds))

    def inspect(self, located: BackendSettings) -> Candidate:
        """Note what the files of settings with paths are like now."""
        files = self.kinds.of(located).doctor.files(located)
        return Candidate(located, tuple(_state_of(each.path) for each in files))

    def make_later(self, candidate: Candidate, key: str) -> DemandEngine:
        """Make an engine for a changed configuration.

        Args:
            candidate: of a kind with a worker.
            key: tells it from engines of the same name.
        """
        settings = candidate.settings
        served_by = self.kinds.of(settings).served_by
        assert isinstance(served_by, InWorker)  # noqa: S101  # others are no candidates
        return DemandEngine(
            worker_start(served_by, settings, self.config)._replace(key=key),
            limits=self.config.limits,
            coordinator=self.coordinator,
            observer=self.board,
        )

    def note_choice(self, backend: str, choice: str) -> None:
        """Have the status tell which model of its ladder a backend has; none if it has none."""
        self.board.model_choices[backend] = choice

    def make(
        self, settings: BackendSettings, prespawned: SpawnedProcess | None
    ) -> Backend:
        """Make a backend, with a worker that was started before, if there is one."""
        match self.kinds.of(settings).served_by:
            case InDaemon() as in_daemon:
                return make_in_daemon(in_daemon, settings, self.board)
            case InWorker() as in_worker:
                return self._make_engine(in_worker, settings, prespawned)

    def make_all(
        self,
        backends: Sequence[BackendSettings],
        early: Mapping[str, SpawnedProcess],
    ) -> list[Backend]:
        """Make the backends of the start.

        Args:
            backends: with the paths of their models.
            early: workers that have been started already, by the names of their backends.
        """
        return [self.make(each, early.get(each.name)) for each in backends]

    def inspect_all(self, backends: Sequence[BackendSettings]) -> dict[str, Candidate]:
        """Note what serves the backends with workers, by their names."""
        return {
            each.name: self.inspect(each)
            for each in backends
            if isinstance(self.kinds.of(each).served_by, InWorker)
        }

    def _make_engine(
        self,
        in_worker: InWorker[BackendSettings],
        settings: BackendSettings,
        prespawned: SpawnedProcess | None,
    ) -> Engine:
        is_loaded_later = is_on_demand(settings)
        engine = (DemandEngine if is_loaded_later else Engine)(
            worker_start(in_worker, settings, self.config),
            limits=self.config.limits,
            coordinator=self.coordinator,
            observer=self.board,
            prespawned=prespawned,
        )
        if isinstance(engine, DemandEngine):
            self.loader.add(engine, keep_alive_of(settings), self.config.limits)
        else:
            self.loader.add_resident(engine)
        return engine


def _model(settings: BackendSettings) -> str:
    """Return the model that a table names."""
    return str(getattr(settings, "model", settings.name))


def _state_of(path: Path) -> FileState | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
