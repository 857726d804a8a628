"""Build the Debian package: `python -m tools.debian [DIRECTORY]`, by default `dist`.

The sources are copied first, so that Debian's tools leave nothing in the checkout. A package is
kept in the cache by all that it follows from, and built once.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.packages import ROOT
from tools.wheel import cache, say

SOURCES: Final = (
    *("inferd", "share", "systemd", "debian", "tools"),
    *("constraints.txt", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"),
)
LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", ".*")
BUILD: Final = ("dpkg-buildpackage", "--build=binary", "--no-sign")
KEPT: Final = 2
"""Builds that stay in the cache, of 160 MB each: for a release, and for tests."""
KEY_CHARS: Final = 16


def main() -> int:
    """Build the package, or find it; copy it and say where it is."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist")
    if shutil.which("dpkg-buildpackage") is None or shutil.which("dh") is None:
        print("error: apt install dpkg-dev debhelper fakeroot", file=sys.stderr)
        return 2
    target.mkdir(exist_ok=True, parents=True)
    print(shutil.copy(package(), target))
    return 0


def package(compression: str = "") -> Path:
    """Return the package of this checkout, out of the cache or built now.

    Args:
        compression: options of dpkg-deb; by default those of a release.
    """
    directory = cache() / "debian" / key(compression)
    if not directory.is_dir():
        say("building the Debian package")
        directory.parent.mkdir(parents=True, exist_ok=True)
        build(directory, compression)
        prune(directory.parent)
    [found] = directory.glob("*.deb")
    return found


def prune(directory: Path) -> None:
    """Remove all builds and their logs but the newest."""
    logs = sorted(directory.glob("*.log"), key=lambda log: log.stat().st_mtime)
    for log in logs[:-KEPT]:
        shutil.rmtree(log.with_suffix(""), ignore_errors=True)
        log.unlink()


def key(compression: str) -> str:
    """Return a key of all that the package follows from."""
    digest = hashlib.sha256(
        f"{compression}\0{Path('/etc/debian_version').read_text()}".encode()
    )
    for path in sorted(sources()):
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_mode}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:KEY_CHARS]


def sources() -> Iterator[Path]:
    """List the files of the checkout that the package follows from."""
    for name in SOURCES:
        top = ROOT / name
        files = [top] if top.is_file() else top.rglob("*")
        yield from (
            path for path in files if path.is_file() and "__pycache__" not in path.parts
        )


def build(directory: Path, compression: str) -> None:
    """Build in a copy; the directory appears when the package is complete."""
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".building-") as name:
        scratch = Path(name)
        source = scratch / "source"
        source.mkdir()
        for each in SOURCES:
            if (ROOT / each).is_dir():
                shutil.copytree(ROOT / each, source / each, ignore=LEFT_OUT)
            else:
                shutil.copy(ROOT / each, source / each)
        log = directory.with_suffix(".log")
        with log.open("w") as file:
            done = subprocess.run(
                BUILD,
                cwd=source,
                env={
                    **os.environ,
                    "INFERD_CACHE_DIR": str(cache().absolute()),
                    "DEB_COMPRESSION": compression,
                },
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            say("".join(log.read_text().splitlines(keepends=True)[-30:]))
            sys.exit(f"error: the package did not build; the whole log is {log}")
        kept = scratch / "kept"
        kept.mkdir()
        for path in scratch.glob("*.deb"):
            path.rename(kept / path.name)
        shutil.rmtree(directory, ignore_errors=True)
        kept.rename(directory)


if __name__ == "__main__":
    sys.exit(main())
