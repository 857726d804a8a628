"""inferd serve: run the daemon in the foreground.

What a daemon is made of takes as long to import as what a worker is made of, so workers
are started before.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import get_args

from msgspec.structs import replace

from inferd.cli.configuration import load_config, located
from inferd.cli.console import CommandError
from inferd.config import Config, ConfigError, Level, LogSettings
from inferd.engine.spawn import first_load, spawned_early
from inferd.ipc import Load
from inferd.server.sizes import active_requests


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a TOML configuration"
    )
    parser.add_argument("--model", metavar="FILE.gguf", help="serve this model alone")
    parser.add_argument(
        "--log-level", choices=get_args(Level), help="in place of log.level"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    read_config = partial(_read_config, arguments)
    config, refusal = Config(log=LogSettings(file=False)), ""
    loads: list[Load] = []
    try:
        config = read_config()
        loads = first_loads(config)
    except (ConfigError, CommandError) as error:
        refusal = str(error)
    with spawned_early(loads) as early:
        from inferd.cli.running import run_daemon  # noqa: PLC0415  # see above

        return run_daemon(config, early, read_config, refusal=refusal)


def _read_config(arguments: argparse.Namespace) -> Config:
    """Read the configuration, and what the command line puts in its place.

    Raises:
        ConfigError: it cannot be used.
    """
    try:
        config = load_config(arguments.config, arguments.model)
    except CommandError as error:
        raise ConfigError(error.text) from error
    level = arguments.log_level or config.log.level
    return replace(config, log=replace(config.log, level=level))


def first_loads(config: Config) -> list[Load]:
    """Say what the worker of each backend is to load.

    Raises:
        CommandError: a model cannot be had.
    """
    return [
        first_load(
            located(settings), n_slots=active_requests(config), limits=config.limits
        )
        for settings in config.backend
    ]
