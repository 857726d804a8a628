"""inferd serve: run the daemon in the foreground.

What a daemon is made of takes as long to import as what a worker is made of, so workers
are started before.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from msgspec.structs import replace

from inferd.choices import Level
from inferd.cli.configuration import config_file, load_config, located
from inferd.cli.console import CommandError
from inferd.config import Config, ConfigError, LogSettings
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
    read_config = reader(arguments.config, arguments.model, arguments.log_level)
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


def reader(
    file: Path | None, model: str | None, level: Level | None = None
) -> Callable[[], Config]:
    """Make what reads the configuration: the file that it finds first, again and again.

    A file that is gone at a reload is an error: the defaults have no rules of access.

    Args:
        file: from the command line.
        model: from the command line, too.
        level: of the log; in place of the configured one.
    """

    def read_config() -> Config:
        nonlocal file
        try:
            file = config_file(file)
            config = load_config(file, model)
        except CommandError as error:
            raise ConfigError(error.text) from error
        return replace(config, log=replace(config.log, level=level or config.log.level))

    return read_config


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
