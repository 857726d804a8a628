"""The composition root: build the daemon from its configuration and run it until it ends."""

import os
import resource
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import trio

from inferd.backend.interface import StartFailedError
from inferd.config.kinds.registry import KINDS, KindRegistry
from inferd.config.load import socket_directory
from inferd.config.served import StoreView, view_stores
from inferd.config.settings import (
    BackendSettings,
    Config,
    ConfigError,
    ModelsSettings,
    is_on_demand,
)
from inferd.engine.supervisor.spawn import SpawnedProcess
from inferd.memory.coordinator import MemoryCoordinator
from inferd.paths import LOG_FILE, log_directory, model_stores
from inferd.residency.residency import TurnRules
from inferd.server.admin.running_config import no_config_file
from inferd.server.capacity import memory_budget
from inferd.server.daemon import Daemon
from inferd.server.identity.access import OPERATORS_ONLY, Access, load_access
from inferd.server.listen.failed_start import refuse_clients, without_directories
from inferd.server.listen.listeners import (
    NO_INHERITED_SOCKETS,
    InheritedSockets,
    Listeners,
    inherited_sockets,
)
from inferd.server.loading.factory import BackendFactory
from inferd.server.loading.loader import ModelLoader
from inferd.server.loading.swap import SharedModels
from inferd.server.services.endpoints import BINDINGS, AnyBinding, surfaces_of
from inferd.server.telemetry.log import Log, writing_log
from inferd.server.telemetry.log_file import LogFile
from inferd.server.telemetry.setup import Telemetry, make_telemetry
from inferd.service.bind import ListenError
from inferd.service.garbage import infrequent_gc
from inferd.surfaces import Surface

NO_CHOICES: Final[Mapping[str, str]] = MappingProxyType({})
NO_WORKERS: Final[Mapping[str, SpawnedProcess]] = MappingProxyType({})

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""SIGTERM and SIGINT stop the daemon: the first one drains it, the next one ends it at once.
SIGHUP makes it read its configuration again; with a terminal, whose end it then means, it
stops the daemon, too."""


class StartError(Exception):
    """The daemon could not start, and the log that says why could not be written."""


def run_daemon(  # noqa: PLR0913  # the inputs of the process
    config: Config,
    backends: Sequence[BackendSettings],
    early: Mapping[str, SpawnedProcess],
    read_config: Callable[[], Config],
    *,
    refusal: str = "",
    choices: Mapping[str, str] = NO_CHOICES,
    bindings: Sequence[AnyBinding] = BINDINGS,
    kinds: KindRegistry = KINDS,
) -> bool:
    """Serve until SIGTERM or SIGINT; return whether the daemon started.

    Args:
        config: the configuration.
        backends: its backends, with the paths of their models.
        early: workers that have been started already, by the names of their backends.
        read_config: reads the configuration again; raises ``ConfigError``.
        refusal: why the configuration is invalid; if there is a reason, only log it.
        choices: which model was chosen from a ladder and why, by the names of backends.
        bindings: the inference surfaces.
        kinds: the kinds of the backends.

    Raises:
        StartError: it could not start, and the log could not be written.
    """
    telemetry = _telemetry_for(config)
    telemetry.board.model_choices = {**choices}
    surfaces = surfaces_of(bindings)

    def make(inherited: InheritedSockets) -> Daemon:
        return make_daemon(
            config,
            backends,
            telemetry,
            inherited=inherited,
            read_config=read_config,
            early=early,
            bindings=bindings,
            kinds=kinds,
        )

    with (
        _inherited(surfaces) as (inherited, is_invalid),
        _writing_log(config, telemetry, surfaces) as log,
    ):
        if not (refusal := refusal or is_invalid):
            with _duplicates(inherited) as listening:
                refusal = _serve(partial(make, listening))
        is_logged = bool(refusal) and log.log_start_failure(refusal)
        if refusal:
            telemetry.notifier.failed(without_directories(refusal))
            _refuse_clients(config, telemetry, inherited, refusal, surfaces)
    if refusal and not is_logged:
        raise StartError(refusal)
    return not refusal


def _writing_log(
    config: Config, telemetry: Telemetry, surfaces: Sequence[Surface]
) -> AbstractContextManager[Log]:
    """Write the log as it is configured while inside."""
    return writing_log(
        config.log.level,
        log_file(config),
        telemetry.metrics.line_lost,
        surfaces,
        telemetry.log_tail,
    )


@contextmanager
def _inherited(
    surfaces: Sequence[Surface],
) -> Iterator[tuple[InheritedSockets, str]]:
    """Yield the sockets that systemd passed, or none and why they cannot be used."""
    with ExitStack() as stack:
        try:
            inherited = stack.enter_context(inherited_sockets(os.environ, surfaces))
        except ListenError as error:
            yield NO_INHERITED_SOCKETS, str(error)
        else:
            yield inherited, ""


@contextmanager
def _duplicates(inherited: InheritedSockets) -> Iterator[InheritedSockets]:
    """Duplicate the sockets: a daemon closes those that it has listened at."""
    with ExitStack() as stack:
        yield {
            leaf: stack.enter_context(closing(sock.dup()))
            for leaf, sock in inherited.items()
        }


def _serve(make: Callable[[], Daemon]) -> str:
    """Run a daemon; return why it could not start, or an empty string.

    Args:
        make: builds it.
    """
    reasons: list[str] = []
    try:
        daemon = make()
        _raise_file_limit()
        with infrequent_gc():
            trio.run(_run_until_signal, daemon)
        for number in SIGNALS:  # the daemon has ended; later signals change nothing
            signal.signal(number, signal.SIG_IGN)
    except* (ConfigError, ListenError, StartFailedError) as group:
        reasons += [str(error) for error in _leaves(group)]
    return "; ".join(reasons)


def _refuse_clients(
    config: Config,
    telemetry: Telemetry,
    inherited: InheritedSockets,
    reason: str,
    surfaces: Sequence[Surface],
) -> None:
    """Tell the clients at inherited sockets why the daemon did not start."""
    try:
        access = load_access(config.access, surfaces)
    except ConfigError:  # operators only
        access = Access({each.socket: OPERATORS_ONLY for each in surfaces})
    listeners = Listeners(socket_directory(config), config.listen.group, inherited)
    trio.run(
        partial(
            refuse_clients,
            listeners,
            reason,
            telemetry.metrics,
            access=access,
            surfaces=surfaces,
        )
    )


def make_daemon(  # noqa: PLR0913  # the inputs of the process
    config: Config,
    backends: Sequence[BackendSettings],
    telemetry: Telemetry | None = None,
    *,
    inherited: InheritedSockets = NO_INHERITED_SOCKETS,
    read_config: Callable[[], Config] = no_config_file,
    early: Mapping[str, SpawnedProcess] = NO_WORKERS,
    bindings: Sequence[AnyBinding] = BINDINGS,
    kinds: KindRegistry = KINDS,
) -> Daemon:
    """Build the daemon from its configuration.

    Args:
        config: the configuration.
        backends: its backends, with the paths of their models.
        telemetry: status, notifications and metrics.
        inherited: sockets of a service manager.
        read_config: reads the configuration again; raises ``ConfigError``.
        early: workers that have been started already, by the names of their backends.
        bindings: the inference surfaces.
        kinds: the kinds of the backends.

    Raises:
        ConfigError: a user or a group of the configuration is unknown.
    """
    telemetry = telemetry or _telemetry_for(config)
    coordinator = MemoryCoordinator(
        kinds.demanding_memory(backends),
        memory_budget(config),
        telemetry.board.planned,
        on_demand=[each.name for each in backends if is_on_demand(each)],
    )
    tasks = ("tasks", "Tasks of the event loop.", _count_tasks)
    telemetry.metrics.add_gauges(*coordinator.gauges(), tasks)
    rules = TurnRules(config.memory.min_residency_s, config.memory.longest_wait_s)
    loader = ModelLoader(rules=rules, observer=telemetry.board)
    factory = BackendFactory(config, telemetry.board, coordinator, loader, kinds)
    listeners = Listeners(socket_directory(config), config.listen.group, inherited)
    served = factory.inspect_all(backends)  # before they are read
    made = factory.make_all(backends, early)
    return Daemon(
        config,
        listeners,
        made,
        telemetry,
        read_config,
        bindings=bindings,
        models=SharedModels(
            loader, coordinator, factory, served, partial(_look_at_store, kinds)
        ),
    )


async def _look_at_store(
    kinds: KindRegistry, models: ModelsSettings, before: StoreView
) -> StoreView:
    """Find the models of the stores that are served; a thread reads the files."""
    look = partial(view_stores, model_stores(), models, before, kinds)
    return await trio.to_thread.run_sync(look, abandon_on_cancel=True)


def _telemetry_for(config: Config) -> Telemetry:
    """Make the telemetry of a daemon with this configuration."""
    return make_telemetry(os.environ, load_silence_s=config.limits.load_silence_s)


def log_file(config: Config) -> LogFile | None:
    """Return the log file, if there is one; its first line opens it."""
    configured = config.log.directory
    directory = log_directory() if configured is None else Path(configured)
    if directory is None or not config.log.file:
        return None
    return LogFile(
        directory / LOG_FILE,
        max_bytes=config.log.max_bytes,
        generations=config.log.generations,
    )


def _count_tasks() -> int:
    """Count the tasks of the event loop; a leaked task shows here."""
    if not trio.lowlevel.in_trio_run():
        return 0
    return trio.lowlevel.current_statistics().tasks_living


def _raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one: a connection takes one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _run_until_signal(daemon: Daemon) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(_handle_signals, daemon)
        await daemon.run()
        nursery.cancel_scope.cancel()


async def _handle_signals(
    daemon: Daemon, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    ends_at_hangup = _has_terminal()  # after the hangup it is too late to ask
    with trio.open_signal_receiver(*_received_signals()) as signals:
        task_status.started()
        async for number in signals:
            if number != signal.SIGHUP or ends_at_hangup:
                daemon.stop()
            else:
                daemon.order_reload()


def _received_signals() -> list[signal.Signals]:
    """Return the signals that the daemon acts on.

    A shell without job control starts background processes with SIGINT ignored, and it
    stays ignored: Ctrl-C is meant for the process in the foreground.
    """
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return [each for each in SIGNALS if each != signal.SIGINT or not is_ignored]


def _has_terminal() -> bool:
    """Tell whether SIGHUP means that the daemon's terminal was closed.

    If SIGHUP was ignored before, as by ``nohup``, it does not: then it is sent to reload.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return not is_ignored and any(os.isatty(number) for number in range(3))


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]
