"""Write digests into `constraints.txt`: `python -m tools.hashes [--check]`.

Versions there are changed by hand; this asks the registry, as pip is configured to, for
the files of each: the wheels that pip would take on each of `TARGETS`, and the sources of
`SOURCES`. Nothing is installed, and wheels are not downloaded: the registry reports digests.
The packages of the model converter are written for `inferd.models.convert`, too.
With ``--check`` nothing is written, and the exit code is 1 where something would be.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Final

from inferd.models.packages.programs import CONVERTER_FILES, CONVERTER_NEEDS
from tools.packages import (
    CONSTRAINTS,
    PIP,
    ROOT,
    blocks,
    normal,
    requirements_file,
)
from tools.programs import LISTS

HEAD: Final = """\
# Versions that were tested together, and the SHA-256 of each file of them that may be used:
# wheels for x86-64 and 64-bit ARM, Python 3.11 to 3.14, and the sources of a few. Versions
# are changed by hand, and then `python -m tools.hashes` writes the digests. Ranges stand in
# pyproject.toml; what packages are built with, and what `make bench` compares with, is here
# alone.
"""
PROGRAMS_HEAD: Final = """\
# What one environment of `tools/programs.py` installs, for tests alone. Versions are changed
# by hand, and then `python -m tools.hashes` writes the digests.
"""
ARCHITECTURES: Final = ("x86_64", "aarch64")
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
GLIBCS: Final = (31, 41)
"""An older system may want another wheel of the same version than a newer one."""
TARGETS: Final = tuple(product(ARCHITECTURES, PYTHONS, GLIBCS))
SOURCES: Final = ("jsonschema", "llama-cpp-python", "pywhispercpp")
"""Packages whose sources are used, too."""
NO_WHEEL: Final = ("llama-cpp-python",)
"""Packages of which only the sources are used."""
NOT_EVERYWHERE: Final = ("atheris",)
"""Packages that are not available for each target; their users report that."""
MISSING: Final = re.compile(r"No matching distribution found for (\S+)")
Files = dict[str, set[str]]
"""The digests of each package, by its normal name."""


def main() -> int:
    """Write stale files, or report them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    text = constraints(CONSTRAINTS.read_text())
    wanted = {CONSTRAINTS: text, CONVERTER_FILES: of_converter(text)}
    for path in sorted(LISTS.glob("*.txt")):
        wanted[path] = of_programs(path.read_text())
    stale = [path for path in wanted if read(path) != wanted[path]]
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.write_text(wanted[path])
    return int(check and bool(stale))


def of_programs(text: str) -> str:
    """Rewrite the list of an environment of tests, with the same versions."""
    pins = sorted((block.split()[0] for block in blocks(text).values()), key=normal)
    files: Files = {package_of(pin): set() for pin in pins}
    add(files, wheels(pins))
    return PROGRAMS_HEAD + "".join(entry(pin, files[package_of(pin)]) for pin in pins)


def of_converter(text: str) -> str:
    """Extract the lines of the converter's packages, which the package inferd contains."""
    found = blocks(text)
    return "".join(found[package_of(pin)] for pin in CONVERTER_NEEDS)


def read(path: Path) -> str | None:
    """Read a file, if it is there."""
    return path.read_text() if path.is_file() else None


def constraints(text: str) -> str:
    """Rewrite the whole file, with the same versions."""
    pins = sorted((block.split()[0] for block in blocks(text).values()), key=normal)
    files: Files = {package_of(pin): set() for pin in pins}
    add(files, wheels(pins))
    built_with = "".join(entry(pin, files[package_of(pin)]) for pin in pins)
    with requirements_file(built_with) as constraint:
        add(files, sources(pins, constraint))
    return HEAD + "".join(entry(pin, files[package_of(pin)]) for pin in pins)


def add(files: Files, found: Iterable[Files]) -> None:
    """Merge new digests into existing ones."""
    for each in found:
        for package, digests in each.items():
            files[package] |= digests


def package_of(pin: str) -> str:
    """Take the package's normal name out of a pin."""
    return normal(pin.partition("==")[0])


def entry(pin: str, digests: Iterable[str]) -> str:
    """Write a package's lines."""
    return (
        " \\\n    ".join((pin, *(f"--hash=sha256:{each}" for each in sorted(digests))))
        + "\n"
    )


def wheels(pins: Iterable[str]) -> Iterator[Files]:
    """Ask for the wheels that pip would take, target by target."""
    wanted = [pin for pin in pins if package_of(pin) not in NO_WHEEL]
    for target in TARGETS:
        print(f"asking for {' '.join(map(str, target))}", file=sys.stderr, flush=True)
        yield wheels_of(wanted, *target)


def wheels_of(pins: list[str], architecture: str, python: str, glibc: int) -> Files:
    """Ask for the wheels of one target, as pip reports them.

    Raises:
        SystemExit: a required package has none.
    """
    platforms = [
        *(f"manylinux_2_{minor}_{architecture}" for minor in range(glibc, 4, -1)),
        *(f"manylinux{year}_{architecture}" for year in ("2014", "2010", "1")),
    ]
    options = [
        *("install", "--dry-run", "--ignore-installed", "--quiet", "--no-deps"),
        *("--only-binary", ":all:", "--implementation", "cp"),
        *("--python-version", python, "--target", tempfile.gettempdir()),
        *(word for each in platforms for word in ("--platform", each)),
    ]
    pins = list(pins)
    while True:
        with tempfile.NamedTemporaryFile() as report:
            failure = run(*options, "--report", report.name, *pins)
            if not failure:
                return reported(Path(report.name))
        missing = MISSING.search(failure)
        if missing is None or package_of(missing[1]) not in NOT_EVERYWHERE:
            sys.exit(failure)
        pins.remove(missing[1])


def reported(report: Path) -> Files:
    """Read the digests from pip's report."""
    return {
        normal(each["metadata"]["name"]): {
            each["download_info"]["archive_info"]["hashes"]["sha256"]
        }
        for each in json.loads(report.read_text())["install"]
    }


def sources(pins: Iterable[str], constraint: Path) -> Iterator[Files]:
    """Download sources, whose digests pip does not report without building them."""
    for pin in pins:
        if (package := package_of(pin)) in SOURCES:
            with tempfile.TemporaryDirectory() as scratch:
                options = ("download", "--no-deps", "--no-binary", package)
                building = ("--build-constraint", str(constraint))
                if failure := run(*options, *building, "--dest", scratch, pin):
                    sys.exit(failure)
                [archive] = Path(scratch).iterdir()
                yield {package: {hashlib.sha256(archive.read_bytes()).hexdigest()}}


def run(*arguments: str) -> str:
    """Run our pip; return its output if it fails, else an empty text."""
    command = [sys.executable, *PIP, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return (result.stdout + result.stderr) if result.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
