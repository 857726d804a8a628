"""The daemon's process: put together, run until it is told to end."""

import os
import resource
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import trio

from inferd.backend import StartFailedError
from inferd.cli.configuration import socket_directory
from inferd.cli.console import EXIT_ERROR, EXIT_OK, CommandError
from inferd.cli.serve import first_loads
from inferd.config import Config, ConfigError
from inferd.engine.engine import Engine
from inferd.engine.ledger import Ledger
from inferd.engine.spawn import Spawned
from inferd.paths import LOG_FILE, log_directory
from inferd.server.audience import Audience, gather
from inferd.server.doors import NONE_INHERITED, Doors, Inherited, adopted
from inferd.server.force import nothing_to_read
from inferd.server.listen import ListenError
from inferd.server.log import writing_log
from inferd.server.logfile import LogFile
from inferd.server.loop import rare_collections
from inferd.server.run import Daemon
from inferd.server.sizes import memory_budget

NONE_EARLY: Final[Mapping[str, Spawned]] = MappingProxyType({})

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The first two end the daemon: drained at the first, hurried at the next. The last one
has it read its configuration again, or ends it too where it says that a terminal is gone."""


def run_daemon(
    config: Config,
    early: Mapping[str, Spawned],
    read_config: Callable[[], Config],
    *,
    refusal: str = "",
) -> int:
    """Serve until SIGTERM or SIGINT; give the exit code.

    Args:
        config: as it was read.
        early: workers that have been started already, by the names of their backends.
        read_config: reads the configuration again; raises ``ConfigError``.
        refusal: why that cannot be served; the log is all there is to it then.

    Raises:
        CommandError: it could not start.
    """
    audience = gather(os.environ)
    lost = audience.metrics.line_lost
    with writing_log(config.log.level, log_file(config), lost) as log:
        refusal = refusal or _serve(config, audience, read_config, early)
        is_told = bool(refusal) and log.fail(refusal)
    if refusal and not is_told:
        raise CommandError(refusal)
    return EXIT_ERROR if refusal else EXIT_OK


def _serve(
    config: Config,
    audience: Audience,
    read_config: Callable[[], Config],
    early: Mapping[str, Spawned],
) -> str:
    """Run the daemon; give the reason if it could not start."""
    reasons: list[str] = []
    try:
        with adopted(os.environ) as inherited:
            daemon = make_daemon(config, audience, inherited, read_config, early)
            _raise_file_limit()
            with rare_collections():
                trio.run(_until_told, daemon)
            for number in SIGNALS:  # one that comes now has nothing left to end
                signal.signal(number, signal.SIG_IGN)
    except* (CommandError, ConfigError, ListenError, StartFailedError) as group:
        reasons += [str(error) for error in _flat(group)]
    return "; ".join(reasons)


def make_daemon(
    config: Config,
    audience: Audience | None = None,
    inherited: Inherited = NONE_INHERITED,
    read_config: Callable[[], Config] = nothing_to_read,
    early: Mapping[str, Spawned] = NONE_EARLY,
) -> Daemon:
    """Put the daemon together as configured, with the sockets that are there already.

    Raises:
        CommandError: a model cannot be had.
        ConfigError: a user or a group cannot.
    """
    audience = audience or gather(os.environ)
    ledger = Ledger(config.backend, memory_budget(config), audience.board.planned)
    for name, text, read in ledger.figures():
        audience.metrics.watch(name, text, read)
    audience.metrics.watch("tasks", "Tasks of the event loop.", _count_tasks)
    engines = [
        Engine(
            load,
            limits=config.limits,
            ledger=ledger,
            observer=audience.board,
            early=early.get(load.settings.name),
        )
        for load in first_loads(config)
    ]
    doors = Doors(socket_directory(config), config.listen.group, inherited)
    return Daemon(config, doors, engines, audience, read_config)


def log_file(config: Config) -> LogFile | None:
    """Find the log's file; it is opened when there is a line for it."""
    given = config.log.directory
    directory = log_directory() if given is None else Path(given)
    if directory is None or not config.log.file:
        return None
    return LogFile(
        directory / LOG_FILE,
        max_bytes=config.log.max_bytes,
        generations=config.log.generations,
    )


def _count_tasks() -> int:
    """Count the event loop's tasks; what leaks one leaks here."""
    if not trio.lowlevel.in_trio_run():
        return 0
    return trio.lowlevel.current_statistics().tasks_living


def _raise_file_limit() -> None:
    """Allow as many descriptors as we may have: the usual 1,024 is one a connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _until_told(daemon: Daemon) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(_obey_signals, daemon)
        await daemon.run()
        nursery.cancel_scope.cancel()


async def _obey_signals(
    daemon: Daemon, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    ends_at_hangup = _has_terminal()  # a terminal that is gone is none any more
    with trio.open_signal_receiver(*SIGNALS) as signals:
        task_status.started()
        async for number in signals:
            if number != signal.SIGHUP or ends_at_hangup:
                daemon.stop()
            else:
                with suppress(ConfigError):  # it is in the log
                    daemon.reload()


def _has_terminal() -> bool:
    """Tell whether we were started on a terminal: then SIGHUP says that it is gone."""
    return any(os.isatty(number) for number in range(3))


def _flat(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _flat(part)]
    return [error]
