"""inferd config check: list all that is wrong with a configuration."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from inferd.cli.console import EXIT_ERROR, EXIT_OK
from inferd.config.faults import examine_config
from inferd.config.kinds.registry import KINDS, KindRegistry
from inferd.config.load import config_file, locate_model, read_text
from inferd.config.served import missing_models, view_stores
from inferd.config.settings import Config, ConfigError
from inferd.doctor.configuration import account_faults
from inferd.paths import config_files, model_stores
from inferd.terminal import print_line, print_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the TOML configuration; by default the one that inferd serve would read",
    )
    parser.epilog = (
        "Exit 0 if inferd serve would take it, 2 if not. Nothing is started; whether "
        "models load and fit is what inferd doctor checks."
    )


def run(arguments: argparse.Namespace, kinds: KindRegistry = KINDS) -> int:
    """Print a line for each fault; exit 2 if there is one."""
    try:
        path = config_file(arguments.config)
        text = read_text(path) if path else ""
    except ConfigError as error:
        print_stderr(f"error: {error}")
        return EXIT_ERROR
    where = f"{path}: " if path else ""
    examined = examine_config(text, kinds)
    faults = examined.faults
    if examined.config is not None:
        faults = [*_faults_here(examined.config, kinds)]
    for fault in faults:
        print_stderr(f"error: {where}{fault}")
    if faults or examined.config is None:
        print_stderr("")
        print_stderr("hint: docs/configuration.md has all keys and what they may be")
        return EXIT_ERROR
    names = examined.config.served
    found = where or f"there is no {' and no '.join(map(str, config_files()))}: "
    print_line(f"{found}ok, backends: {names}")
    return EXIT_OK


def _faults_here(config: Config, kinds: KindRegistry) -> Iterator[str]:
    """Yield what a configuration names and this machine has not."""
    for index, backend in enumerate(config.backend):
        for settings in kinds.of(backend).rungs(backend) or [backend]:
            try:
                locate_model(settings, kinds)
            except ConfigError as error:
                yield f"backend[{index}]: {error}"
    view = view_stores(model_stores(), config.models, kinds=kinds)
    yield from missing_models(config.models, view)
    yield from account_faults(config)
