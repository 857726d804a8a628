"""Fetch eleven seconds of recorded speech into the cache, for tests and measurements.

They are from John F. Kennedy's inaugural address, which is in the public domain, and are
in the source package of the binding to whisper.cpp: as WAV in 16 kHz and mono, and as MP3.
The package is downloaded, checked and unpacked, never installed.
"""

import hashlib
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tools.packages import download_source, pinned
from tools.setup import PYTHON
from tools.wheel import cache, say

PACKAGE: Final = "pywhispercpp"
FOLDER: Final = "whisper.cpp/samples"
CLIP: Final = "jfk.wav"
CLIP_SHA256: Final = "59dfb9a4acb36fe2a2affc14bacbee2920ff435cb13cc314a08c13f66ba7860e"
COMPRESSED: Final = "jfk.mp3"
COMPRESSED_SHA256: Final = (
    "20d3323a2bcce6f25498b8911a397503a0a99fa92b6ba58d62788cb42b6e5459"
)
FILES: Final = {CLIP: CLIP_SHA256, COMPRESSED: COMPRESSED_SHA256}


def clip_path() -> Path:
    """Return the path of the recording."""
    return cache() / "speech" / CLIP_SHA256 / CLIP


def compressed_clip_path() -> Path:
    """Return the path of the same recording as MP3."""
    return clip_path().with_name(COMPRESSED)


def main() -> int:
    """Fetch it, unless it is there."""
    target = clip_path().parent
    if all((target / name).is_file() for name in FILES):
        return 0
    say(f"fetching recorded speech from the sources of {PACKAGE} {pinned(PACKAGE)}")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".partial-") as scratch:
        archive = download_source(PYTHON, PACKAGE, Path(scratch))
        for name, sha256 in FILES.items():
            taken = take_out(archive, name, Path(scratch))
            actual = hashlib.sha256(taken.read_bytes()).hexdigest()
            if actual != sha256:
                say(f"error: SHA-256 of {name} is {actual}, expected {sha256}")
                return 2
            taken.rename(target / name)
    return 0


def take_out(archive: Path, name: str, directory: Path) -> Path:
    """Unpack one file of the package; return its path."""
    with tarfile.open(archive) as package:
        [member] = [each for each in package if each.name.endswith(f"/{FOLDER}/{name}")]
        file = package.extractfile(member)
        assert file is not None  # noqa: S101  # it is a file
        (directory / name).write_bytes(file.read())
    return directory / name


if __name__ == "__main__":
    sys.exit(main())
