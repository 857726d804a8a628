"""A bare Debian in a directory, and our package and a newer one of it, to install there.

The system is made by mmdebstrap once and kept in the cache: with systemd and nothing that the
package needs, but with the archives of that, so that apt installs it without a network.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from inferd import __version__
from inferd.paths import models_directory
from tests.systemd.container import mount
from tools.debian.__main__ import package
from tools.wheel import cache, say

SUITE: Final = "bookworm"
INCLUDED: Final = "systemd,systemd-sysv,dbus,man-db,bash-completion,netcat-openbsd"
NEEDED: Final = "python3 libgomp1 libstdc++6"
MAKE: Final = (
    *("mmdebstrap", "--variant=minbase", f"--include={INCLUDED}"),
    *("--skip=cleanup/apt", "--dpkgopt=path-include=/usr/share/man/*"),
    f'--customize-hook=chroot "$1" apt-get install -q -y --download-only {NEEDED}',
    SUITE,
)
FAST: Final = "-Zgzip -z1"
"""Compression of packages that are built for a test and thrown away."""
NEWER: Final = "0.1.1"
"""As `docs/packages.md` has it."""
BROKEN: Final = "0.1.2"
"""One whose programs end at once."""
LIBRARIES: Final = "usr/lib/inferd/lib/"
MODEL: Final = "embedded@chat.json"


@contextmanager
def bare_debian(scratch: Path) -> Iterator[Path]:
    """Unpack the system into memory; root of it has a model, and no service has one."""
    with ExitStack() as mounts:
        mount(mounts, scratch, "-t", "tmpfs", "-o", "size=4g", "tmpfs")
        root = scratch / "root"
        root.mkdir()
        subprocess.run(["tar", "-xf", _system(), "-C", root], check=True)
        conf = root / "etc/apt/apt.conf.d/90test"  # what is in the archive, no more
        conf.write_text('APT::Install-Recommends "false";\n')
        _give_model(root)
        yield root


def _system() -> Path:
    key = hashlib.sha256("\0".join((*MAKE, platform.machine())).encode()).hexdigest()
    archive = cache() / "debian" / f"system-{key[:16]}.tar"
    if not archive.is_file():
        say("making a bare Debian for tests, once")
        archive.parent.mkdir(parents=True, exist_ok=True)
        partial = archive.with_suffix(".partial.tar")
        subprocess.run([*MAKE, partial], check=True, capture_output=True)
        partial.rename(archive)
    return archive


def _give_model(root: Path) -> None:
    """Copy a model into root's own store, as if root had pulled it."""
    store, source = root / "root/.local/share/inferd/models", models_directory()
    (store / "manifests").mkdir(parents=True)
    (store / "blobs").mkdir()
    shutil.copy(source / "manifests" / MODEL, store / "manifests")
    for blob in re.findall(r"[0-9a-f]{64}", (store / "manifests" / MODEL).read_text()):
        if (source / "blobs" / blob).is_file():
            shutil.copy(source / "blobs" / blob, store / "blobs")


def packages(target: Path) -> None:
    """Leave our package there, a newer one that differs in its number, and one that is broken."""
    built = Path(shutil.copy(package(FAST), target))
    with tempfile.TemporaryDirectory(dir=target) as name:
        tree = Path(name) / "tree"
        subprocess.run(["dpkg-deb", "--raw-extract", built, tree], check=True)
        [site] = tree.glob("usr/lib/inferd/lib/python3*/site-packages")
        _number(tree, __version__, NEWER)
        _edit(site / "inferd/__init__.py", f'"{__version__}"', f'"{NEWER}"')
        _build(tree, target)
        _number(tree, NEWER, BROKEN)
        _edit(
            site / "inferd/cli/__init__.py", "import sys\n", "import sys\nsys.exit(3)\n"
        )
        _remove_libraries(site)
        _build(tree, target)


def _number(tree: Path, old: str, new: str) -> None:
    _replace(tree / "DEBIAN" / "control", f"Version: {old}", f"Version: {new}")


def _edit(source: Path, old: str, new: str) -> None:
    """Change a module, and remove what Python would take without a look at the source."""
    _replace(source, old, new)
    for compiled in (source.parent / "__pycache__").glob(f"{source.stem}.*"):
        compiled.unlink()


def _remove_libraries(site: Path) -> None:
    """What ends before it imports one needs none, and is built and unpacked at once."""
    for each in site.iterdir():
        if each.is_dir() and each.name != "inferd":
            shutil.rmtree(each)


def _build(tree: Path, target: Path) -> None:
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, target],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def without_libraries(built: Path, target: Path) -> Path:
    """Give the package without the libraries of others, for checks of what is ours."""
    tree = target / "tree"
    tree.mkdir()
    subprocess.run(["dpkg-deb", "--control", built, tree / "DEBIAN"], check=True)
    reads = ("dpkg-deb", "--fsys-tarfile", str(built))
    with subprocess.Popen(reads, stdout=subprocess.PIPE) as files:
        unpacks = ("tar", "-x", "-C", str(tree), f"--exclude=./{LIBRARIES}*")
        subprocess.run(unpacks, stdin=files.stdout, check=True)
    sums = tree / "DEBIAN" / "md5sums"
    lines = sums.read_text().splitlines(keepends=True)
    sums.write_text("".join(each for each in lines if LIBRARIES not in each))
    ours = target / built.name
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", *FAST.split(), "--build", tree, ours],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return ours


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def missing_tools() -> str:
    """Say what is missing to build packages and systems; empty if nothing is."""
    names = [name for name in ("mmdebstrap", "dh") if shutil.which(name) is None]
    return (
        f"needs {' and '.join(names)}"
        if names
        else ""
        if os.geteuid() == 0
        else "needs root"
    )
