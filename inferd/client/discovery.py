"""Find the daemon's sockets."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from inferd.client.trust import UntrustedServerError
from inferd.paths import client_directories

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5


class NoDaemonError(Exception):
    """No daemon answers where one could be."""


def socket_paths(leaf: str, directory: Path | None = None) -> list[Path]:
    """List the paths where a socket may be: one if a directory is given."""
    directories = [directory] if directory else client_directories()
    return [each / leaf for each in directories]


def pauses() -> Iterator[float]:
    """Give the seconds to wait between tries: doubled each time, up to a bound."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(pause * 2, LONGEST_PAUSE_S)


def nobody_at(
    tried: Mapping[Path, OSError | UntrustedServerError],
) -> NoDaemonError | UntrustedServerError:
    """Say why no daemon was found: who was refused, else what the kernel said where."""
    for error in tried.values():
        if isinstance(error, UntrustedServerError):
            return error
    places = ", nor ".join(f"at {path} ({_why(why)})" for path, why in tried.items())
    return NoDaemonError(f"no daemon answers {places}")


def _why(error: Exception) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error)
