"""Find the configuration file, read it, and locate the model files that it names."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from inferd.config.parse import parse_config
from inferd.config.settings import (
    BackendSettings,
    Config,
    ConfigError,
    LlamaCppSettings,
    MockSettings,
    WhisperCppSettings,
)
from inferd.models.embedded import UnknownModelError, embedded_model
from inferd.paths import cache_directory, config_files, runtime_directory


def load_config(file: Path | None, model: str | None = None) -> Config:
    """Read the configuration.

    Args:
        file: from the command line; ``None`` for ``$INFERD_CONFIG``, else the first
            existing one of the default paths, else the defaults.
        model: from the command line; replaces the configured backends.

    Raises:
        ConfigError: it cannot be used.
    """
    config = Config()
    if path := config_file(file):
        try:
            config = parse_config(path.read_text(encoding="utf-8"))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"configuration {path}: {reason}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"configuration {path}: not UTF-8: {error}") from error
    if model is not None:
        backend = (LlamaCppSettings(name="chat", model=model),)
        config = msgspec.structs.replace(config, backend=backend)
    return config


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


def locate_model(settings: BackendSettings) -> BackendSettings:
    """Replace ``embedded:NAME`` by the path and the SHA-256 of its file.

    Raises:
        ConfigError: there is no such model, its file is not in the cache, or a path
            cannot be expanded.
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
        raise ConfigError(f"backend {name}: model = {error}") from error
    if model is None:
        path = _file_path(name, "model", reference)
        return msgspec.structs.replace(settings, model=str(path))
    if model.kind != (kind := settings.__struct_config__.tag):
        raise ConfigError(
            f'backend {name}: {reference} is for kind = "{model.kind}", not "{kind}"'
        )
    path = model.path_in(cache_directory())
    if not path.is_file():
        raise ConfigError(
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
        raise ConfigError(f"backend {name}: the path of {key} is not UTF-8") from error
    except RuntimeError as error:
        raise ConfigError(
            f"backend {name}: {key} = {reference!r}: no such home directory"
        ) from error
    return path
