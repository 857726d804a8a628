"""inferd serve: run the daemon in the foreground.

The modules of the daemon take as long to import as those of a worker, so the workers are
started before the daemon's modules are imported.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from msgspec.structs import replace

from inferd.cli.console import EXIT_ERROR, EXIT_OK, CommandError
from inferd.config.choices import LogLevel
from inferd.config.kinds.kind import InWorker
from inferd.config.kinds.registry import KINDS, KindRegistry
from inferd.config.load import config_file, load_config, locate_model
from inferd.config.settings import BackendSettings, Config, ConfigError, LogSettings
from inferd.engine.supervisor.spawn import WorkerStart, prespawn_workers
from inferd.server.capacity import worker_start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="file with the configuration, in TOML",
    )
    parser.add_argument(
        "--model",
        metavar="FILE.gguf",
        help="serve this model instead of the configured backends",
    )
    parser.add_argument(
        "--log-level", choices=get_args(LogLevel), help="overrides log.level"
    )


def run(arguments: argparse.Namespace, kinds: KindRegistry = KINDS) -> int:
    """Serve until SIGTERM or SIGINT."""
    read_config = config_reader(
        arguments.config, arguments.model, arguments.log_level, kinds
    )
    config, refusal = Config(log=LogSettings(file=False)), ""
    backends: list[BackendSettings] = []
    try:
        config = read_config()
        backends = locate_models(config, kinds)
    except ConfigError as error:
        refusal = str(error)
    with prespawn_workers(first_starts(config, backends, kinds)) as early:
        from inferd.app import StartError, run_daemon  # noqa: PLC0415  # see above

        try:
            has_served = run_daemon(
                config, backends, early, read_config, refusal=refusal, kinds=kinds
            )
        except StartError as error:
            raise CommandError(str(error)) from error
    return EXIT_OK if has_served else EXIT_ERROR


def config_reader(
    file: Path | None,
    model: str | None,
    level: LogLevel | None = None,
    kinds: KindRegistry = KINDS,
) -> Callable[[], Config]:
    """Return a function that reads the configuration, always from the same file.

    A file that is missing at a reload is an error, since the defaults have no access rules.

    Args:
        file: from the command line; ``None`` for the first one found.
        model: from the command line; replaces the configured backends.
        level: log level from the command line; overrides the configured one.
        kinds: the kinds of backends that there are.
    """

    def read_config() -> Config:
        nonlocal file
        file = config_file(file)
        config = load_config(file, model, kinds=kinds)
        return replace(config, log=replace(config.log, level=level or config.log.level))

    return read_config


def locate_models(config: Config, kinds: KindRegistry = KINDS) -> list[BackendSettings]:
    """Give the backends the paths of their models.

    Raises:
        ConfigError: a model file cannot be found.
    """
    return [locate_model(settings, kinds) for settings in config.backend]


def first_starts(
    config: Config, backends: Sequence[BackendSettings], kinds: KindRegistry = KINDS
) -> list[WorkerStart]:
    """List the starts of the workers, of those backends that have one."""
    return [
        worker_start(kind.program, settings, config)
        for settings in backends
        if isinstance(kind := kinds.of(settings).served_by, InWorker)
    ]
