"""Fill the tree of the Debian package: `python3 -m tools.debian.environment DIRECTORY`.

``debian/rules`` runs this with the machine's Python. The environment of what inferd needs is made
and compiled once, and kept in the cache; inferd itself is added to a copy. Everything that names
the directory of the build is removed, so that two builds have the same files.
"""

import compileall
import hashlib
import os
import py_compile
import shutil
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from inferd.trusted_path import open_directory
from tools.install import EXTRAS
from tools.packages import (
    BUILDING,
    CONSTRAINTS,
    ROOT,
    install,
    install_file,
    install_pip,
    pinned,
    pip,
    wanted,
)
from tools.wheel import PACKAGE, cache, key as llama_key, llama_wheel

PREFIX: Final = Path("/usr/lib/inferd")
UNITS: Final = Path("lib/systemd/system")
"""Where Debian 12 looks for the units of packages; later ones have it in /usr."""
USER_UNITS: Final = Path("usr/lib/systemd/user")
COMMAND: Final = "inferd"
PYTHON: Final = "/usr/bin/python3"
INSTALLED: Final = b"/opt/inferd/current/bin/inferd"
"""The command in the units of the sources, and the page that they name."""
DOCUMENTED: Final = b"file:///opt/inferd/current/share/README.md"
WAITING: Final = (
    *("inferd.service", "inferd@.service"),
    *("inferd-bridge.service", "inferd-bridge-helper.service"),
)
"""Services that wait while the package is replaced."""
KEY_CHARS: Final = 16
DROP_INS: Final = "*.conf"
"""What an operator or a user copies: they change nothing by themselves."""


def main() -> int:
    """Fill a tree."""
    target = Path(sys.argv[1]).absolute()
    os.environ["PIP_NO_COMPILE"] = "1"  # done below, without the build's paths
    environment = target / PREFIX.relative_to("/")
    shutil.copytree(needed_packages(), environment, symlinks=True)
    add_inferd(environment, target)
    shutil.copy(ROOT / "debian" / "wait-for-upgrade", environment)
    place_units(ROOT / "systemd", target)
    shutil.copytree(ROOT / "share", target / "usr" / "share", dirs_exist_ok=True)
    zsh = target / "usr" / "share" / "zsh"  # Debian's shells look in another directory
    (zsh / "site-functions").rename(zsh / "vendor-completions")
    name_python(ROOT / "debian" / "inferd.substvars")
    return 0


def needed_packages() -> Path:
    """Return an environment with all that inferd and its extras need, out of the cache."""
    directory = cache() / "debian" / f"environment-{packages_key()}"
    os.close(open_directory(directory.parent, makes=True))
    if not directory.is_dir():
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".env-") as name:
            environment = Path(name) / PREFIX.relative_to("/")
            install_needed(environment)
            relocate(environment)
            [site] = sites(environment)
            compile_modules(site, Path(name))
            shutil.rmtree(directory, ignore_errors=True)
            environment.rename(directory)
    return directory


def packages_key() -> str:
    """Return a key of all that these packages follow from."""
    words = (
        Path(__file__).read_text(),
        CONSTRAINTS.read_text(),
        *wanted(*EXTRAS),
        llama_key(pinned(PACKAGE)),
        sys.version,
    )
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:KEY_CHARS]


def install_needed(environment: Path) -> None:
    """Install the packages, each file by its digest."""
    venv.create(environment, with_pip=True, symlinks=True)
    own = environment / "bin" / "python"
    install_pip(own)
    wheel = llama_wheel(own)
    install_file(own, PACKAGE, wheel.path, wheel.sha256)
    install(own, *wanted(*EXTRAS))


def add_inferd(environment: Path, target: Path) -> None:
    """Install inferd beside what it needs, and compile it for its place."""
    own = environment / "bin" / "python"
    with tempfile.TemporaryDirectory() as wheels:
        pip(own, "wheel", "--no-deps", *BUILDING, "--wheel-dir", wheels, str(ROOT))
        files = map(str, Path(wheels).glob("*.whl"))
        pip(own, "install", "--no-deps", "--no-index", *files)
    shutil.rmtree(environment / "share")  # placed below /usr/share
    command = environment / "bin" / COMMAND
    text = command.read_text().partition("\n")[2]
    command.write_text(f"#!{PREFIX}/bin/python3\n{text}")
    [site] = sites(environment)
    for metadata in site.glob("inferd-*.dist-info"):
        forget_build(metadata)
    compile_modules(site / "inferd", target)


def relocate(environment: Path) -> None:
    """Remove what names the directory of the build, and what nobody needs."""
    shutil.rmtree(environment / "include")
    shutil.rmtree(environment / "share", ignore_errors=True)
    programs = environment / "bin"
    for program in programs.iterdir():
        if not program.name.startswith("python"):
            program.unlink()
    (programs / "python3").unlink()
    (programs / "python3").symlink_to(PYTHON)
    home = f"home = {Path(PYTHON).parent}\n"
    (environment / "pyvenv.cfg").write_text(
        f"{home}include-system-site-packages = false\n"
    )
    [site] = sites(environment)
    for metadata in site.glob("*.dist-info"):
        forget_build(metadata)


def sites(environment: Path) -> Iterator[Path]:
    """Give the directory of an environment's packages."""
    return environment.glob("lib/python*/site-packages")


def compile_modules(directory: Path, target: Path) -> None:
    """Compile all modules for their place: the paths below a tree are those of a machine."""
    for compiled in list(directory.rglob("__pycache__")):
        shutil.rmtree(compiled)
    is_compiled = compileall.compile_dir(
        directory,
        quiet=1,
        stripdir=str(target),
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        workers=0,
    )
    if not is_compiled:
        print("note: a module of a package does not compile", file=sys.stderr)


def forget_build(metadata: Path) -> None:
    """Remove from a package's metadata where it was built, and programs that are gone."""
    (metadata / "direct_url.json").unlink(missing_ok=True)
    (metadata / "REQUESTED").unlink(missing_ok=True)
    record = metadata / "RECORD"
    if record.is_file():
        left_out = ("../", f"{metadata.name}/direct_url", f"{metadata.name}/REQ")
        lines = record.read_text().splitlines(keepends=True)
        record.write_text(
            "".join(each for each in lines if not each.startswith(left_out))
        )


def place_units(sources: Path, target: Path) -> None:
    """Copy the units into the tree, with this package's command and manual page in them."""
    for source, path in units_in(sources, target):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_bytes().replace(INSTALLED, b"/usr/lib/inferd/bin/inferd")
        path.write_bytes(text.replace(DOCUMENTED, b"man:inferd(1)"))
    for name in WAITING:
        drop_in = target / UNITS / f"{name}.d"
        drop_in.mkdir()
        shutil.copy(ROOT / "debian" / "upgrade.conf", drop_in / "upgrade.conf")
    examples = target / PREFIX.relative_to("/") / "share" / "systemd"
    for source in sources.rglob(DROP_INS):
        path = examples / source.relative_to(sources)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, path)


def units_in(sources: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """Give the units with their places."""
    for directory, place in ((sources, UNITS), (sources / "user", USER_UNITS)):
        for source in directory.iterdir():
            if source.suffix in {".service", ".socket"}:
                yield source, target / place / source.name


def name_python(substvars: Path) -> None:
    """Write which Python the package depends on: that whose modules were compiled."""
    major, minor = sys.version_info[:2]
    versions = f"python3 (>= {major}.{minor}~), python3 (<< {major}.{minor + 1}~)"
    with substvars.open("a") as file:
        file.write(f"python:Depends={versions}\n")


if __name__ == "__main__":
    sys.exit(main())
