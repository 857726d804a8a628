"""Find the configuration that a command works with."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from inferd.cli.console import CommandError
from inferd.config import (
    BackendSettings,
    Config,
    ConfigError,
    LlamaCppSettings,
    MockSettings,
    WhisperCppSettings,
)
from inferd.models.embedded import UnknownModelError, embedded_model
from inferd.paths import cache_directory, config_files, runtime_directory
from inferd.toml import parse_config


def load_config(file: Path | None, model: str | None = None) -> Config:
    """Read the configuration.

    Args:
        file: from the command line; else ``$INFERD_CONFIG``, else the usual places, else
            the defaults.
        model: from the command line; replaces the configured backends.

    Raises:
        CommandError: it cannot be used.
    """
    config = Config()
    if path := config_file(file):
        try:
            config = parse_config(path.read_text(encoding="utf-8"))
        except ConfigError as error:
            raise CommandError(f"{path}: {error}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"configuration {path}: {error}") from error
    if model is not None:
        backend = (LlamaCppSettings(name="chat", model=model),)
        config = msgspec.structs.replace(config, backend=backend)
    return config


def config_file(file: Path | None) -> Path | None:
    """Find the file of the configuration, if there is one.

    Raises:
        CommandError: one of the usual places cannot be looked into.
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
            raise CommandError(f"configuration {path}: {error.strerror}") from error
    return None


def socket_directory(config: Config) -> Path:
    """Find where this configuration's sockets are."""
    configured = config.listen.directory
    return Path(configured) if configured else runtime_directory()


def located(settings: BackendSettings) -> BackendSettings:
    """Put a file's path and its known SHA-256 in place of ``embedded:NAME``.

    Raises:
        CommandError: there is no such model, or its file is not in the cache.
    """
    match settings:
        case MockSettings():
            return settings
        case LlamaCppSettings(name=name, draft_model=draft, mmproj=mmproj):
            if draft is not None:
                draft = str(_file_path(name, "draft_model", draft))
            if mmproj is not None:
                mmproj = str(_file_path(name, "mmproj", mmproj))
            return _with_model(
                msgspec.structs.replace(settings, draft_model=draft, mmproj=mmproj)
            )
        case WhisperCppSettings():
            return _with_model(settings)


M = TypeVar("M", LlamaCppSettings, WhisperCppSettings)


def _with_model(settings: M) -> M:
    name, reference = settings.name, settings.model
    try:
        model = embedded_model(reference)
    except UnknownModelError as error:
        raise CommandError(f"backend {name}: model = {error}") from error
    if model is None:
        path = _file_path(name, "model", reference)
        return msgspec.structs.replace(settings, model=str(path))
    if model.kind != (kind := settings.__struct_config__.tag):
        raise CommandError(
            f'backend {name}: {reference} is for kind = "{model.kind}", not "{kind}"'
        )
    path = model.path_in(cache_directory())
    if not path.is_file():
        raise CommandError(
            f"backend {name}: {reference} is not in the cache ({path}); "
            f"run: python -m inferd.models {reference}"
        )
    return msgspec.structs.replace(
        settings, model=str(path), sha256=settings.sha256 or model.sha256
    )


def _file_path(name: str, key: str, reference: str) -> Path:
    try:
        path = Path(reference).expanduser().absolute()
        str(path).encode()
    except UnicodeEncodeError as error:
        raise CommandError(f"backend {name}: the path of {key} is not UTF-8") from error
    except RuntimeError as error:
        raise CommandError(
            f"backend {name}: {key} = {reference!r}: no such home directory"
        ) from error
    return path
