"""Find the configuration file, read it, and locate the model files that it names."""

import os
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from inferd.config.find_model import find_model
from inferd.config.kinds.registry import DEFAULT, KINDS, KindRegistry, S
from inferd.config.parse import parse_config
from inferd.config.settings import Config, ConfigError
from inferd.installation import command_to_add, missing_module
from inferd.paths import config_files, model_stores, runtime_directory
from inferd.trusted_path import open_regular_file

CONFIG_MAX_BYTES: Final = 1024 * 1024
"""Bytes of a configuration; one with every key, and its comments, has some 30,000. F-44."""


def load_config(
    file: Path | None, model: str | None = None, *, kinds: KindRegistry = KINDS
) -> Config:
    """Read the configuration.

    Args:
        file: from the command line; ``None`` for ``$INFERD_CONFIG``, else the first
            existing one of the default paths, else the defaults.
        model: from the command line; replaces the configured backends.
        kinds: the kinds of backends that it may have.

    Raises:
        ConfigError: it cannot be used.
    """
    config = Config(backend=(kinds.default,))
    if path := config_file(file):
        text = read_text(path)
        try:
            config = parse_config(text, kinds)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
    if model is not None:
        backend = (DEFAULT.settings(name="chat", model=model),)
        config = msgspec.structs.replace(config, backend=backend)
    return config


def read_text(path: Path) -> str:
    """Read a configuration file.

    Raises:
        ConfigError: it cannot be read, has over ``CONFIG_MAX_BYTES``, or is not UTF-8.
    """
    try:
        with os.fdopen(open_regular_file(path), "rb") as file:
            data = file.read(CONFIG_MAX_BYTES + 1)
        if len(data) > CONFIG_MAX_BYTES:
            raise ConfigError(
                f"configuration {path}: over {CONFIG_MAX_BYTES} bytes, which are allowed"
            )
        return data.decode()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"configuration {path}: {reason}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration {path}: not UTF-8: {error}") from error


def config_file(file: Path | None) -> Path | None:
    """Find the configuration file, if there is one.

    Raises:
        ConfigError: one of the default paths cannot be accessed.
    """
    if file is not None:
        return file
    if given := os.environ.get("INFERD_CONFIG"):
        return Path(given)
    for path in config_files():
        try:
            if path.exists():
                return path
        except OSError as error:
            raise ConfigError(f"configuration {path}: {error.strerror}") from error
    return None


def socket_directory(config: Config) -> Path:
    """Return the directory of this configuration's sockets."""
    configured = config.listen.directory
    return Path(configured) if configured else runtime_directory()


def locate_model(settings: S, kinds: KindRegistry = KINDS) -> S:
    """Replace references to models by the paths, and the SHA-256, of their files.

    Raises:
        ConfigError: its engine is not installed, there is no such model, its files are
            missing, or a path cannot be expanded.
    """
    find = partial(find_model, stores=model_stores())
    kind = kinds.of(settings)
    if kind.extra and (module := missing_module(kind.extra)):
        raise ConfigError(
            f"backend {settings.name}: kind {kind.name} needs inferd's extra {kind.extra}, "
            f"and {module} is not installed; run: {command_to_add(kind.extra)}"
        )
    return kind.locate(settings, find)
