"""Errors of decoding audio and image files."""

import sys
from importlib.metadata import PackageNotFoundError, requires
from typing import Final

MEDIA_PACKAGES: Final = {"av": ("av", "audio"), "PIL": ("pillow", "images")}
"""Module to the package of ``inferd[media]`` that has it, and what that decodes."""


class MediaError(Exception):
    """A file cannot be decoded, or only a part of it."""


class MissingExtraError(Exception):
    """A package that decodes this kind of file is not installed."""

    def __init__(self, module: str) -> None:
        package, kind = MEDIA_PACKAGES[module]
        super().__init__(
            f"decoding {kind} needs the package {package}; in a checkout run: make setup; "
            f"elsewhere: {sys.executable} -m pip install '{requirement(package)}'"
        )


def requirement(package: str) -> str:
    """Return a package with the versions that inferd's extras allow."""
    try:
        extras = requires("inferd") or []
    except PackageNotFoundError:  # run from a directory, without an installation
        extras = []
    allowed = (line.partition(";")[0].strip() for line in extras)
    return next((line for line in allowed if line.startswith(package)), package)
