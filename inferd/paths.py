"""Default paths of sockets, configuration, models, cache and log."""

import os
from collections.abc import Mapping
from pathlib import Path

LOCK_NAME = "inferd.lock"
LOG_FILE = "inferd.ndjson"
SYSTEM_DIRECTORY = Path("/run/inferd")
SYSTEM_MODELS = Path("/var/lib/inferd/models")
"""The machine's model store: root writes it, and the service reads it."""
OLDER_SYSTEM_CACHE = Path("/opt/inferd")
"""Where versions before had the embedded models of the machine, as in a cache."""


def runtime_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of the sockets and the lock if none is configured.

    1. ``$RUNTIME_DIRECTORY``, which systemd sets for ``RuntimeDirectory=``.
    2. ``$XDG_RUNTIME_DIR/inferd``.
    3. ``$HOME/.inferd/run``.
    4. ``/tmp/inferd-<uid>``.
    """
    environ = os.environ if environ is None else environ
    if given := environ.get("RUNTIME_DIRECTORY"):
        return Path(given.split(":")[0])
    if given := environ.get("XDG_RUNTIME_DIR"):
        return Path(given) / "inferd"
    if home := environ.get("HOME"):
        return Path(home) / ".inferd" / "run"
    return Path(f"/tmp/inferd-{os.getuid()}")  # noqa: S108  # owner and mode are checked


def client_directories(environ: Mapping[str, str] | None = None) -> list[Path]:
    """List the directories where a client looks for sockets, in order."""
    own = runtime_directory(environ)
    return [own] if own == SYSTEM_DIRECTORY else [own, SYSTEM_DIRECTORY]


def config_files(environ: Mapping[str, str] | None = None) -> list[Path]:
    """List the default paths of the configuration; the first that exists is used."""
    environ = os.environ if environ is None else environ
    home = environ.get("XDG_CONFIG_HOME") or str(
        Path(environ.get("HOME", "/")) / ".config"
    )
    return [Path(home) / "inferd" / "config.toml", Path("/etc/inferd/config.toml")]


def cache_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of files that can be fetched or built again.

    1. ``$INFERD_CACHE_DIR``.
    2. ``$CACHE_DIRECTORY``, which systemd sets for ``CacheDirectory=``.
    3. ``$XDG_CACHE_HOME/inferd``, else ``~/.cache/inferd``.
    """
    environ = os.environ if environ is None else environ
    for variable in ("INFERD_CACHE_DIR", "CACHE_DIRECTORY"):
        if given := environ.get(variable):
            return Path(given.split(":")[0])
    if given := environ.get("XDG_CACHE_HOME"):
        return Path(given) / "inferd"
    return Path(environ.get("HOME", "/")) / ".cache" / "inferd"


def state_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of what is kept over restarts.

    1. ``$STATE_DIRECTORY``, which systemd sets for ``StateDirectory=``.
    2. ``$XDG_STATE_HOME/inferd``, else ``~/.local/state/inferd``.
    """
    environ = os.environ if environ is None else environ
    if given := environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    home = Path(environ.get("HOME", "/"))
    return Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "inferd"


def log_directory(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the directory of the log file if none is configured; ``None`` for no file.

    1. ``$INFERD_LOG_DIR``; empty, there is no file.
    2. ``$LOGS_DIRECTORY``, which systemd sets for ``LogsDirectory=``.
    3. ``$HOME/.inferd/logs``; without a ``$HOME`` there is no file.
    """
    environ = os.environ if environ is None else environ
    if (given := environ.get("INFERD_LOG_DIR")) is not None:
        return Path(given) if given else None
    if given := environ.get("LOGS_DIRECTORY"):
        return Path(given.split(":")[0])
    if home := environ.get("HOME"):
        return Path(home) / ".inferd" / "logs"
    return None


def models_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of the model store that commands change."""
    return model_stores(environ)[0]


def model_stores(environ: Mapping[str, str] | None = None) -> list[Path]:
    """List the stores in which models are looked up; the first that has a name counts.

    1. ``$INFERD_MODELS``: one path, or several between colons.
    2. ``$XDG_DATA_HOME/inferd/models``, else ``~/.local/share/inferd/models``, and then
       the machine's store.
    """
    environ = os.environ if environ is None else environ
    if given := [*filter(None, environ.get("INFERD_MODELS", "").split(":"))]:
        return [*map(Path, given)]
    return [own_models_directory(environ), SYSTEM_MODELS]


def own_models_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of a user's own store, where none is given."""
    environ = os.environ if environ is None else environ
    home = environ.get("XDG_DATA_HOME") or str(
        Path(environ.get("HOME", "/")) / ".local" / "share"
    )
    return Path(home) / "inferd" / "models"
