"""Install and download with pip only the files that `constraints.txt` names.

That file pins each package and has the SHA-256 of every file of it that may be used, build
dependencies included. pip reads it as constraints, requires a digest of each file that it
installs, and builds from source only the packages that are requested here.
"""

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from base64 import urlsafe_b64encode
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackagePath, distributions
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
PIP: Final = ("-P", "-m", "pip", "--disable-pip-version-check", "--no-input")
BUILDING: Final = ("--build-constraint", str(CONSTRAINTS))
"""Option that applies the same digests to build dependencies."""
CHECKED: Final = ("--require-hashes", "--constraint", str(CONSTRAINTS), *BUILDING)
WHEELS_ALONE: Final = ("--only-binary", ":all:")
NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def pip(python: Path, *arguments: str) -> None:
    """Run an environment's pip; print its output and end the program only if it fails."""
    command = [str(python), *PIP, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.stderr.write(result.stdout + result.stderr)
        sys.exit(2)


def install_pip(python: Path) -> None:
    """Install the pinned pip: older ones read no digests from constraints."""
    with requirements_file(pinned_block("pip")) as file:
        pip(python, "install", "--require-hashes", *WHEELS_ALONE, "-r", str(file))


def install(python: Path, *requirements: str) -> None:
    """Install packages and their dependencies, each file by its digest."""
    pip(python, "install", *CHECKED, *WHEELS_ALONE, *requirements)


def install_file(python: Path, package: str, file: Path, sha256: str) -> None:
    """Install a wheel that was built here, if it is still the one that was built.

    Another build of the same version would count as installed otherwise.
    """
    line = f"{package} @ {file.as_uri()} --hash=sha256:{sha256}\n"
    with requirements_file(line) as requirements:
        pip(
            python,
            *("install", "--force-reinstall", "--no-deps", "--require-hashes"),
            *("-r", str(requirements)),
        )


def download_source(python: Path, package: str, directory: Path) -> Path:
    """Download a package's sources; return the archive's path.

    pip runs code of the package for its name and version, in an environment of its own;
    the archive and the packages installed there have digests too.
    """
    words = ("--no-deps", "--no-binary", package, "--dest", str(directory), package)
    pip(python, "download", *CHECKED, *words)
    [archive] = directory.glob("*.tar.gz")
    return archive


def unpack(archive: Path, directory: Path) -> None:
    """Unpack sources whose digest was compared.

    Python 3.11.2, which is Debian 12's, has no filter of what an archive may hold.
    """
    with tarfile.open(archive) as file:
        file.extraction_filter = getattr(tarfile, "data_filter", _as_it_is)
        file.extractall(directory)  # noqa: S202  # the filter is above


def _as_it_is(member: tarfile.TarInfo, _path: str) -> tarfile.TarInfo:
    return member


def damage(site: Path, packages: Iterable[str], hashed: Container[str] = ()) -> str:
    """Describe a package that is not there as it was installed; empty if all are.

    Args:
        site: directory of the installed packages.
        packages: their names; the versions are those of `constraints.txt`.
        hashed: those whose files are compared with the digests that pip recorded.
    """
    for name in packages:
        found = next(iter(distributions(name=name, path=[str(site)])), None)
        if found is None or found.version != pinned(name):
            return f"{name} {pinned(name)} is not installed"
        for file in (found.files or ()) if name in hashed else ():
            if not _is_as_recorded(file):
                return f"{file} is not as it was installed"
    return ""


def _is_as_recorded(file: PackagePath) -> bool:
    if file.hash is None:  # the record itself, and what Python compiled since
        return True
    try:
        data = Path(file.locate()).read_bytes()
    except OSError:
        return False
    digest = hashlib.new(file.hash.mode, data).digest()
    return urlsafe_b64encode(digest).decode().rstrip("=") == file.hash.value


def wanted(*extras: str) -> list[str]:
    """List the requirements of `pyproject.toml`, with extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return [
        *project["dependencies"],
        *(requirement for extra in extras for requirement in optional[extra]),
    ]


def normal(package: str) -> str:
    """Write a package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def blocks(text: str) -> dict[str, str]:
    """Cut constraints into packages: each has its pin and then its digests."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if match := NAME.match(line):
            name = normal(match[0])
            found[name] = ""
        if name and not line.startswith("#"):
            found[name] += line + "\n"
    return found


def pinned_block(package: str) -> str:
    """Return a package's lines of `constraints.txt`."""
    return blocks(CONSTRAINTS.read_text())[normal(package)]


def pinned(package: str) -> str:
    """Return the version of a package in `constraints.txt`.

    Raises:
        KeyError: it has none.
    """
    return pinned_block(package).split()[0].partition("==")[2]


@contextmanager
def requirements_file(text: str) -> Iterator[Path]:
    """Write requirements for pip to a temporary file; remove it afterwards."""
    with tempfile.NamedTemporaryFile("w", prefix="inferd-", suffix=".txt") as file:
        file.write(text)
        file.flush()
        yield Path(file.name)
