"""How this program was installed, and the command that adds a part that is missing.

The client, the command line and a daemon need no compiler and none of the extras: engines, the
bridge and what decodes files are parts that are added to the same installation.
"""

import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "llama": ("llama_cpp", "llguidance", "jinja2", "numpy"),
    "whisper": ("_pywhispercpp",),
}
"""The extras that backends need, each with modules that it brings."""

CHECKOUT: Final = Path(__file__).parent.parent / "Makefile"
"""A file beside this package in a checkout; where it was installed there is none."""

DEBIAN: Final = Path("/usr/lib/inferd")
"""The environment of the Debian package."""
RELEASE: Final = Path("/opt/inferd/current")
"""The version in use of those that ``make install`` puts side by side."""

PLACES: Final = {
    RELEASE.parent: "sudo make install",
    DEBIAN: "sudo apt install --reinstall inferd",
}
"""Directories of a whole installation, and the command that mends it."""


def service_prefix(debian: Path = DEBIAN) -> Path:
    """Return where the machine's service is installed, or would be."""
    return debian if debian.is_dir() else RELEASE


def service_command(debian: Path = DEBIAN) -> str:
    """Write the command that installs the machine's service, once more if it is there."""
    return mending_command(str(service_prefix(debian)))


def missing_module(extra: str) -> str:
    """Return the first module of an extra that is not installed; empty if all are.

    Raises:
        KeyError: no backend needs an extra of this name.
    """
    return next((name for name in EXTRAS[extra] if find_spec(name) is None), "")


def command_to_add(
    extra: str, prefix: str = sys.prefix, checkout: Path = CHECKOUT
) -> str:
    """Write the command that adds an extra to this installation.

    Args:
        extra: its name, as ``pyproject.toml`` has it.
        prefix: where Python's packages are.
        checkout: the file that only a checkout has.
    """
    if command := mending_command(prefix, checkout):
        return command
    return f"{shlex.quote(sys.executable)} -m pip install 'inferd[{extra}]'"


def mending_command(prefix: str = sys.prefix, checkout: Path = CHECKOUT) -> str:
    """Write the command that installs this program once more, whole; empty if there is none.

    Args:
        prefix: where Python's packages are.
        checkout: the file that only a checkout has.
    """
    for directory, command in PLACES.items():
        if Path(prefix).is_relative_to(directory):
            return command
    return "make setup" if checkout.is_file() else ""
