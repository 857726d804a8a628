"""Install inferd as a system service, go back to the version before, or take it away.

`make install` puts a version below /opt/inferd, beside the one in use, and the embedded
models with it; it checks all of it, and then has the link /opt/inferd/current lead there
and restarts the service. `make rollback` goes back to the version before, `make verify`
compares what is installed with what was. Units go to /etc/systemd, a link to
/usr/local/bin. `make uninstall` removes these; /etc/inferd, the log and the user stay.

Root runs this checkout by that, so whoever may write to it decides what root runs and what
is installed. Nothing else that another user may write to is run, or trusted: sources are
copied first, without following links; packages and models count by their SHA-256; caches
and directories by who owns them (`tools.trusted`).
"""

import argparse
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from inferd.models.embedded import EMBEDDED_MODELS, EmbeddedModel
from tools.packages import (
    BUILDING,
    ROOT,
    install as install_packages,
    install_file,
    install_pip,
    pip,
    wanted,
)
from tools.releases import (
    CURRENT,
    MODELS,
    MODELS_LISTED,
    PREVIOUS,
    Releases,
    differences,
    has_model,
    remove,
    seal,
)
from tools.service import (
    LINK,
    SYSTEM_UNITS,
    place_files,
    placed,
    reload_systemd,
    remove_placed,
    remove_units,
    restart,
    running,
)
from tools.trusted import (
    MAX_MODEL_BYTES,
    TreeCopy,
    UntrustedError,
    copy_file,
    open_directory,
    open_file,
    remove_tree,
)
from tools.wheel import PACKAGE, cache, llama_wheel, say

PREFIX = Path("/opt/inferd")
OLDER_CACHE = Path("/var/cache/inferd")
"""Where versions before this layout had models, which the service's user could write to."""
EXTRAS: Final = ("llama", "whisper", "media")
SOURCES: Final = (
    *("inferd", "systemd", "constraints.txt", "pyproject.toml"),
    *("README.md", "LICENSE", "CHANGELOG.md"),
)
"""All of a checkout that is installed, or built with."""
SHARED: Final = ("README.md", "LICENSE", "CHANGELOG.md", "systemd")
HOMES = (Path("/home"), Path("/root"))
SYSTEM_PYTHON = Path("/usr/bin/python3")
PYTHON_TEST = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
KEPT: Final = re.compile(
    "PATH|TERM|LANG|LC_.*|PIP_.*|CMAKE_ARGS|CC|CXX|CFLAGS|CXXFLAGS|INFERD_CACHE_DIR"
    "|SSL_CERT_(FILE|DIR)|(https?|no)_proxy|(HTTPS?|NO)_PROXY"
)
"""All variables of the environment that count: others may be those of the user who has
called `sudo`, and lead to that user's files."""


def main() -> int:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=tuple(ACTIONS))
    action = parser.parse_args().action
    if os.geteuid() != 0 and action != "verify":
        say(f"error: make {action} needs root; try: sudo make {action}")
        return 2
    own_environment()
    try:
        return ACTIONS[action]()
    except (UntrustedError, OSError, subprocess.SubprocessError) as error:
        say(f"error: {error}")
        return 2


def own_environment() -> None:
    """Leave nothing in the environment that leads to another user's files."""
    os.umask(0o022)
    os.chdir("/")
    for name in [each for each in os.environ if not KEPT.fullmatch(each)]:
        del os.environ[name]
    os.environ["HOME"] = pwd.getpwuid(os.geteuid()).pw_dir
    os.environ["PATH"] = ":".join(filter(is_ours, os.get_exec_path()))


def is_ours(directory: str) -> bool:
    """Tell whether nobody else may change what a directory has, programs say."""
    try:
        os.close(open_directory(Path(directory)))
    except (UntrustedError, OSError):
        return False
    return True


def install() -> int:
    """Put a version beside what there is, check it, and have it used."""
    python = service_python()
    if python is None:
        say(
            "error: a service cannot see a Python below a home directory or one that is "
            f"not root's, and {SYSTEM_PYTHON} is not 3.11 or later with venv; "
            "run: make install PYTHON=/path/to/python3"
        )
        return 2
    releases = Releases(PREFIX)
    with releases.held():
        release = make(releases, python)
        say(f"{release.name} is complete")
        if not put_in_use(releases, release):
            return 2
        releases.prune()
        remove_older_cache()
    say("installed; next: systemctl enable --now inferd.socket inferd.service")
    return 0


def make(releases: Releases, python: Path) -> Path:
    """Make a release; what is left of one that fails is removed."""
    with building(releases.prefix) as scratch:
        copy_sources(ROOT, scratch / "source")
        release = releases.stage(version_of(scratch / "source"))
        say(f"installing into {release} with {python}")
        try:
            fill(release, python, scratch)
            copy_models(release, releases.prefix / MODELS)
            seal(release)
            refuse_differences(release)
        except BaseException:
            shutil.rmtree(release, ignore_errors=True)
            raise
    return release


@contextmanager
def building(prefix: Path) -> Iterator[Path]:
    """Give a directory of root's alone; it is gone afterwards."""
    with tempfile.TemporaryDirectory(dir=prefix, prefix=".building-") as name:
        yield Path(name)


def copy_sources(checkout: Path, target: Path) -> None:
    """Copy what is installed out of a checkout, which may be another user's."""
    target.mkdir(mode=0o755)
    source = os.open(checkout, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    copied = open_directory(target)
    try:
        owner = os.fstat(source).st_uid
        if owner != 0:
            say(f"note: {checkout} belongs to uid {owner}, whose code this installs")
        tree = TreeCopy()
        for name in SOURCES:
            tree.copy(name, source, copied)
    finally:
        os.close(copied)
        os.close(source)


def version_of(source: Path) -> str:
    """Read the version out of the sources, as the build does."""
    text = (source / "inferd" / "__init__.py").read_text()
    [line] = [each for each in text.splitlines() if each.startswith("__version__")]
    return line.split('"')[1]


def fill(release: Path, python: Path, scratch: Path) -> None:
    """Install the packages, ours among them, and what goes to the system."""
    run(str(python), "-I", "-m", "venv", str(release))
    own = release / "bin" / "python"
    install_pip(own)
    wheel = llama_wheel(own)
    install_file(own, PACKAGE, wheel.path, wheel.sha256)
    install_packages(own, *wanted(*EXTRAS))
    wheels = scratch / "wheels"
    words = (*BUILDING, "--wheel-dir", str(wheels), str(scratch / "source"))
    pip(own, "wheel", "--no-deps", *words)
    pip(own, "install", "--no-deps", "--no-index", *map(str, wheels.glob("*.whl")))
    (release / "share").mkdir(exist_ok=True)
    for name in SHARED:
        source = scratch / "source" / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, release / "share" / name)
    run(str(own), "-I", "-c", "import inferd.cli")


def copy_models(release: Path, models: Path) -> None:
    """Have the embedded models where the service looks, each by its SHA-256."""
    environ = os.environ | {"INFERD_CACHE_DIR": str(cache())}
    for model in EMBEDDED_MODELS.values():
        os.close(open_directory(model.path_in(cache()).parent, makes=True))
    subprocess.run(
        [release / "bin" / "python", "-I", "-m", "inferd.models"],
        env=environ,
        check=True,
    )
    for model in EMBEDDED_MODELS.values():
        copy_model(model, models)
    listed = "".join(f"{model.sha256}\n" for model in EMBEDDED_MODELS.values())
    (release / MODELS_LISTED).write_text(listed)


def copy_model(model: EmbeddedModel, models: Path) -> None:
    """Copy one from our cache, unless it is there as it should be."""
    target = open_directory(models / model.sha256, makes=True)
    try:
        if has_model(target, model.file_name, model.sha256):
            return
        directory = open_directory(model.path_in(cache()).parent)
        try:
            source = open_file(model.file_name, directory)
        finally:
            os.close(directory)
        try:
            copy_file(
                source,
                target,
                model.file_name,
                sha256=model.sha256,
                max_bytes=MAX_MODEL_BYTES,
            )
        finally:
            os.close(source)
    finally:
        os.close(target)


def refuse_differences(release: Path) -> None:
    """Use nothing that is not as it was made.

    Raises:
        UntrustedError: something of it is not; all of that is said before.
    """
    found = list(differences(release))
    for each in found:
        say(each)
    if found:
        raise UntrustedError(f"{release} is not as it was made")


def put_in_use(releases: Releases, release: Path) -> bool:
    """Switch to a release, and back if the service does not come up with it."""
    before, kept = releases.named(CURRENT), releases.named(PREVIOUS)
    services = running()
    if is_up(releases, release, services):
        return True
    say(f"error: the service does not come up with {release.name}")
    if before is not None and before != release:
        say(f"going back to {before.name}; journalctl -u inferd has the reason")
        is_up(releases, before, services)
        releases.keep(kept)
    return False


def is_up(releases: Releases, release: Path, services: list[str]) -> bool:
    """Switch to a release, with its units and no others; tell whether it came up."""
    before = releases.named(CURRENT)
    units = release / "share" / "systemd"
    releases.switch(release)
    try:
        if before is not None:
            remove_placed(placed(before / "share" / "systemd").keys() - placed(units))
        place_files(units, releases.prefix)
    except (UntrustedError, OSError, subprocess.SubprocessError) as error:
        say(f"error: {error}")
        return False
    return restart(services)


def rollback() -> int:
    """Use the release before again; the one in use is then the one before."""
    releases = Releases(PREFIX)
    with releases.held():
        previous = releases.named(PREVIOUS)
        if previous is None:
            say("error: there is no version before this one")
            return 2
        refuse_differences(previous)
        if not put_in_use(releases, previous):
            return 2
    say(f"{previous.name} is in use")
    return 0


def verify() -> int:
    """Compare the release in use with what was installed."""
    release = (PREFIX / CURRENT).resolve()
    if not release.is_dir():
        say("error: nothing is installed")
        return 2
    refuse_differences(release)
    say(f"{release.name} is as it was installed")
    return 0


def service_python() -> Path | None:
    """Find a Python that a service with ProtectHome= can run, and nobody but root change."""
    for candidate in (Path(sys.base_prefix) / "bin" / "python3", SYSTEM_PYTHON):
        real = candidate.resolve()
        if real.is_file() and is_roots(real):
            test = subprocess.run(
                [real, "-I", "-c", PYTHON_TEST], check=False, capture_output=True
            )
            if test.returncode == 0:
                return real
    return None


def is_roots(python: Path) -> bool:
    """Tell whether nobody but root may change a program, and no home hides it."""
    if any(python.is_relative_to(home) for home in HOMES):
        return False
    if not is_ours(str(python.parent)):
        return False
    status = python.lstat()
    return status.st_uid == 0 and not status.st_mode & 0o022


def uninstall() -> int:
    """Stop the services and remove what install has placed."""
    if PREFIX.exists():
        os.close(open_directory(PREFIX))
    remove_units()
    remove_placed(placed(PREFIX / CURRENT / "share" / "systemd"))
    if LINK.is_symlink():
        LINK.unlink()
    reload_systemd()
    remove_older_cache()
    remove(PREFIX)
    say("removed; still there: /etc/inferd, /var/lib/inferd, /var/log/inferd, drop-ins")
    say(f"in {SYSTEM_UNITS}/inferd*.d, and the user and the group inferd")
    return 0


def remove_older_cache() -> None:
    """Remove what is the service's user's, with no more than that user's rights."""
    parent = open_directory(OLDER_CACHE.parent)
    try:
        if not remove_tree(OLDER_CACHE.name, parent):
            say(f"note: {OLDER_CACHE} is not used any more, and could not be removed")
    finally:
        os.close(parent)


def run(*command: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True)


ACTIONS: Final[dict[str, Callable[[], int]]] = {
    "install": install,
    "rollback": rollback,
    "verify": verify,
    "uninstall": uninstall,
}


if __name__ == "__main__":
    sys.exit(main())
