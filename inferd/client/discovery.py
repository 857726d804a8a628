"""Locate the daemon's sockets, and explain why none could be connected to."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from inferd.client.core.failures import NoDaemonError, UntrustedServerError
from inferd.paths import client_directories

__all__ = ["NoDaemonError", "backoff", "no_daemon_error", "socket_paths"]

BACKOFF_MIN_S = 0.01
BACKOFF_MAX_S = 0.5


def socket_paths(leaf: str, directory: Path | None = None) -> list[Path]:
    """List the possible paths of a socket: one if a directory is given."""
    directories = [directory] if directory else client_directories()
    return [path / leaf for path in directories]


def backoff() -> Iterator[float]:
    """Yield the seconds to wait between attempts: exponential, up to ``BACKOFF_MAX_S``."""
    pause = BACKOFF_MIN_S
    while True:
        yield pause
        pause = min(pause * 2, BACKOFF_MAX_S)


def no_daemon_error(
    tried: Mapping[Path, OSError | UntrustedServerError],
) -> NoDaemonError | UntrustedServerError:
    """Build the error for a failed search from the error at each path.

    An untrusted server takes precedence over errors of the kernel.
    """
    for error in tried.values():
        if isinstance(error, UntrustedServerError):
            return error
    places = ", nor ".join(f"at {path} ({_why(why)})" for path, why in tried.items())
    return NoDaemonError(f"no daemon answers {places}", tried)


def _why(error: Exception) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error)
