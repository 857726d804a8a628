"""The sources of a binding, which carry those of its library: from the package registry."""

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tools.setup import pinned

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
        download(package, directory)
        [archive] = directory.glob("*.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(directory, filter="data")
        archive.unlink()
        [found] = directory.iterdir()
        yield found


def download(package: str, directory: Path) -> None:
    """Have pip bring the archive."""
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download"),
        *("--quiet", "--no-deps", "--no-binary", package),
        *("--dest", str(directory), f"{package}=={version(package)}"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(result.stdout + result.stderr)
