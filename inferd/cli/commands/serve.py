"""inferd serve: run the daemon in the foreground.

The modules of the daemon take as long to import as those of a worker, so the workers are
started before the daemon's modules are imported.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args

from msgspec.structs import replace

from inferd.cli.console import EXIT_ERROR, EXIT_OK, CommandError
from inferd.config.choices import LogLevel
from inferd.config.kinds.kind import InWorker
from inferd.config.kinds.registry import KINDS, KindRegistry
from inferd.config.load import config_file, load_config, locate_model
from inferd.config.settings import (
    BackendSettings,
    Config,
    ConfigError,
    LogSettings,
    is_on_demand,
)
from inferd.engine.supervisor.spawn import WorkerStart, prespawn_workers
from inferd.engine.supervisor.spawner import has_remote, without_network
from inferd.server.capacity import memory_budget, worker_start
from inferd.service.importing import without_collections, without_package


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
    choices: Mapping[str, str] = {}
    try:
        config = read_config()
        config_of_now, choices = without_ladders(config, kinds)
        backends = locate_models(config_of_now, kinds)
    except ConfigError as error:
        refusal = str(error)
    starts = first_starts(config, backends, kinds)
    with (
        without_network(
            kinds, has_remotes=has_remote(backends), environ=os.environ
        ) as find_fault,
        prespawn_workers(starts) as early,
    ):
        with without_collections(), without_package("rich"):
            from inferd.app import StartError, run_daemon  # noqa: PLC0415  # see above

        try:
            has_served = run_daemon(
                config,
                backends,
                early,
                read_config,
                refusal=refusal or find_fault(),
                choices=choices,
                kinds=kinds,
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


def without_ladders(
    config: Config, kinds: KindRegistry = KINDS
) -> tuple[Config, dict[str, str]]:
    """Choose the models of backends with a ladder, by the memory that is free.

    Returns:
        The configuration with these models, and what was chosen and why by the name of
        the backend.

    Raises:
        ConfigError: a model cannot be found or read, or a ladder has none that fits.
    """
    if not any(kinds.of(each).rungs(each) for each in config.backend):
        return config, {}
    from inferd.engine.ladder import choose_models  # noqa: PLC0415  # it imports trio

    budget = memory_budget(config)
    chosen = choose_models(config.backend, budget, config.limits, kinds)
    choices = {name: str(choice) for name, choice in chosen.choices.items()}
    return replace(config, backend=chosen.backends), choices


def locate_models(config: Config, kinds: KindRegistry = KINDS) -> list[BackendSettings]:
    """Give the backends the paths of their models.

    Raises:
        ConfigError: a model file cannot be found.
    """
    return [locate_model(settings, kinds) for settings in config.backend]


def first_starts(
    config: Config, backends: Sequence[BackendSettings], kinds: KindRegistry = KINDS
) -> list[WorkerStart]:
    """List the starts of the workers, of those backends that have one from the start."""
    return [
        worker_start(kind, settings, config)
        for settings in backends
        if isinstance(kind := kinds.of(settings).served_by, InWorker)
        and not is_on_demand(settings)
    ]
