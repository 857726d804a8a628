"""The sources of the binding, which carry those of llama.cpp: from the package registry."""

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


def version() -> str:
    """Give the release that our workers load."""
    return pinned(PACKAGE)


@contextmanager
def sources() -> Iterator[Path]:
    """Fetch the binding's sources; they are there while inside."""
    with TemporaryDirectory(prefix="inferd-sources-") as scratch:
        directory = Path(scratch)
        download(directory)
        [archive] = directory.glob("*.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(directory, filter="data")
        archive.unlink()
        [found] = directory.iterdir()
        yield found


def download(directory: Path) -> None:
    """Have pip bring the archive."""
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download"),
        *("--quiet", "--no-deps", "--no-binary", PACKAGE),
        *("--dest", str(directory), f"{PACKAGE}=={version()}"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(result.stdout + result.stderr)
