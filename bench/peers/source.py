"""The sources of a binding, which carry those of its library: from the package registry."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tools.packages import download_source, pinned, unpack

PACKAGE: Final = "llama-cpp-python"
WHISPER: Final = "pywhispercpp"


def version(package: str = PACKAGE) -> str:
    """Give the release that our workers load."""
    return pinned(package)


@contextmanager
def sources(package: str = PACKAGE) -> Iterator[Path]:
    """Fetch a binding's sources; they are there while inside."""
    with TemporaryDirectory(prefix="inferd-sources-") as scratch:
        directory = Path(scratch)
        archive = download_source(Path(sys.executable), package, directory)
        unpack(archive, directory)
        archive.unlink()
        [found] = directory.iterdir()
        yield found
