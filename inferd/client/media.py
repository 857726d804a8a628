"""Files of sound and pictures: what decodes them, and what is wrong with one."""

from typing import Final

PACKAGES: Final = {"av": "sound", "PIL": "pictures"}
"""Modules that ``inferd[media]`` brings, and what they decode."""


class MediaError(Exception):
    """This is no file that can be used, or not all of it."""


class MissingExtraError(Exception):
    """A package is needed that is not installed."""

    def __init__(self, module: str) -> None:
        super().__init__(
            f"decoding {PACKAGES[module]} needs a package: pip install 'inferd[media]'"
        )
