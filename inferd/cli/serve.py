"""inferd serve: run the daemon in the foreground.

What a daemon is made of takes as long to import as what a worker is made of, so workers
are started before.
"""

import argparse
from pathlib import Path

from inferd.cli.configuration import load_config, located
from inferd.config import Config
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
        "--log-level", choices=("debug", "info", "warning", "error"), default="info"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""

    def read_config() -> Config:
        return load_config(arguments.config, arguments.model)

    config = read_config()
    with spawned_early(first_loads(config)) as early:
        from inferd.cli.running import run_daemon  # noqa: PLC0415  # see above

        return run_daemon(
            config, early, read_config=read_config, log_level=arguments.log_level
        )


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
