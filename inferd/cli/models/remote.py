"""Models of the remote engine that a backend asks: ``--at BACKEND``."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from inferd.cli.console import CommandError
from inferd.config.kinds.kind import InWorker
from inferd.config.kinds.registry import KINDS
from inferd.config.kinds.remote import RemoteSettings
from inferd.config.load import load_config
from inferd.config.settings import BackendSettings, Config, ConfigError
from inferd.engine.channel.validator import SessionEndedError
from inferd.engine.supervisor.keys import stash_keys
from inferd.engine.supervisor.spawn import WorkerStart
from inferd.engine.trial_load import trial_load
from inferd.ipc.worker import Load, Loaded, Loading
from inferd.memory.plan import MemoryDemand, MemoryShare

PULL_SILENCE_S = 3600.0
"""Seconds without a word of a worker that has a model pulled: the remote's own bounds are
shorter."""


def add_at_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a backend."""
    parser.add_argument(
        "--at",
        metavar="BACKEND",
        help="of the remote engine that this backend of the configuration asks",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="with --at: file with the configuration, in TOML",
    )


def list_at(backend: str, file: Path | None) -> list[str]:
    """Ask the remote of a backend for the names of its models.

    Raises:
        CommandError: there is no such backend, or the remote does not tell.
    """
    config = _read(file)
    settings = _remote(config, backend)
    load = Load(settings=settings, n_slots=1, lists_models=True)
    found = _ask(load, settings, config.limits.load_silence_s, _pass)
    return found.remote_models


def pull_at(
    backend: str, file: Path | None, model: str, on_told: Callable[[str], None]
) -> None:
    """Have the remote of a backend bring a model to where it is.

    Raises:
        CommandError: there is no such backend, or the remote cannot.
    """
    settings = _remote(_read(file), backend)
    load = Load(settings=settings, n_slots=1, pulls_model=model)
    _ask(load, settings, PULL_SILENCE_S, lambda each: on_told(each.told))


def _read(file: Path | None) -> Config:
    try:
        return load_config(file, kinds=KINDS)
    except ConfigError as error:
        raise CommandError(str(error), "inferd config check") from error


def _remote(config: Config, name: str) -> RemoteSettings:
    """Find the settings of a backend that asks a remote engine."""
    remotes = [each for each in config.backend if isinstance(each, RemoteSettings)]
    for each in remotes:
        if each.name == name:
            return each
    names = ", ".join(each.name for each in remotes) or "none is configured"
    raise CommandError(f"no backend {name} asks a remote engine; those are: {names}")


def _ask(
    load: Load,
    settings: BackendSettings,
    silence_s: float,
    on_loading: Callable[[Loading], None],
) -> Loaded:
    """Have the worker of a backend ask: it has the key, the network and a sandbox."""
    served_by = KINDS.of(settings).served_by
    assert isinstance(served_by, InWorker)  # noqa: S101  # all remote kinds are
    credential = served_by.credential(settings)
    stash_keys([credential])
    start = WorkerStart(served_by.program, load, credential=credential)
    attempt = partial(
        trial_load, start, _grant, silence_s=silence_s, on_loading=on_loading
    )
    try:
        return trio.run(attempt).loaded
    except SessionEndedError as error:
        hint = f"inferd doctor --remote checks backend {settings.name}"
        raise CommandError(str(error), hint) from error


async def _grant(_: MemoryDemand) -> MemoryShare:
    raise AssertionError  # such a worker demands no memory


def _pass(_: Loading) -> None:
    pass
