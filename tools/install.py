"""Install inferd as a system service, switch to the previous version, or uninstall.

`make install` puts a version below /opt/inferd, beside the one in use, and the embedded
models into the machine's store; it checks all files, then switches the link /opt/inferd/current to it
and restarts the service. `make rollback` switches to the previous version, `make verify`
compares the installed files with their digests. Units go to /etc/systemd, a link to
/usr/local/bin, manual pages and completions to /usr/local/share. `make uninstall` removes these; /etc/inferd, the log and the user stay.

This runs the checkout as root, so anyone who may write to it decides what root runs and
installs. No other file that another user may write to is run or trusted: sources are copied
first, without following links; packages and models are checked by their SHA-256, caches and
directories by their owners (`tools.trusted`).
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

from inferd.models.embedded import EMBEDDED_MODELS
from inferd.trusted_path import UntrustedError, open_directory
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
    PREVIOUS,
    STORED_LISTED,
    Releases,
    differences,
    remove,
    seal,
)
from tools.service import (
    LINK,
    STATE,
    SYSTEM_UNITS,
    place_files,
    placed,
    reload_systemd,
    remove_placed,
    remove_units,
    restart,
    running,
    take_state_directory,
)
from tools.trusted import TreeCopy, remove_tree
from tools.wheel import PACKAGE, llama_wheel, say

PREFIX = Path("/opt/inferd")
OLDER_CACHE = Path("/var/cache/inferd")
"""Directory of models in versions before this layout; the service's user could write there."""
EXTRAS: Final = (
    "llama",
    "whisper",
    "media",
    "models",
    "remote",
    "bridge",
    "chat",
    "tools",
    "postgresql",
)
GUIDES: Final = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "THREAT_MODEL.md"),
    *("docs", "adr", "protocol"),
)
"""What the README leads to, for machines without a network."""
SOURCES: Final = (
    *("inferd", "share", "systemd", "constraints.txt", "pyproject.toml"),
    *("LICENSE", *GUIDES),
)
"""Paths of a checkout that are installed or needed for building."""
SHARED: Final = ("LICENSE", "systemd", *GUIDES)
HOMES = (Path("/home"), Path("/root"))
SYSTEM_PYTHON = Path("/usr/bin/python3")
PYTHON_TEST = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
KEPT: Final = re.compile(
    "PATH|TERM|LANG|LC_.*|PIP_.*|CMAKE_ARGS|CC|CXX|CFLAGS|CXXFLAGS|INFERD_CACHE_DIR"
    "|SSL_CERT_(FILE|DIR)|(https?|no)_proxy|(HTTPS?|NO)_PROXY"
)
"""Environment variables that are kept: others may come from the user who called `sudo`, and
point to that user's files."""


def main() -> int:
    """Run the requested action."""
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
    """Remove all variables that may point to another user's files."""
    os.umask(0o022)
    os.chdir("/")
    for name in [each for each in os.environ if not KEPT.fullmatch(each)]:
        del os.environ[name]
    os.environ["HOME"] = pwd.getpwuid(os.geteuid()).pw_dir
    os.environ["PATH"] = ":".join(filter(is_ours, os.get_exec_path()))


def is_ours(directory: str) -> bool:
    """Tell whether only root and the caller may change a directory's content."""
    try:
        os.close(open_directory(Path(directory)))
    except (UntrustedError, OSError):
        return False
    return True


def install() -> int:
    """Install a version beside the others, check it, and switch to it."""
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
    """Make a release; remove its files if that fails."""
    with building(releases.prefix) as scratch:
        copy_sources(ROOT, scratch / "source")
        release = releases.stage(version_of(scratch / "source"))
        say(f"installing into {release} with {python}")
        try:
            fill(release, python, scratch)
            bring_models(release)
            seal(release)
            refuse_differences(release)
        except BaseException:
            shutil.rmtree(release, ignore_errors=True)
            raise
    return release


@contextmanager
def building(prefix: Path) -> Iterator[Path]:
    """Create a temporary directory that only root can access; remove it afterwards."""
    with tempfile.TemporaryDirectory(dir=prefix, prefix=".building-") as name:
        yield Path(name)


def copy_sources(checkout: Path, target: Path) -> None:
    """Copy the files to install from a checkout, which may belong to another user."""
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
    """Install the packages, ours included, and the files for the system."""
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


def bring_models(release: Path) -> None:
    """Have the embedded models in the machine's store, and list them in the release."""
    take_state_directory(STATE)
    references = [model.reference for model in EMBEDDED_MODELS.values()]
    run(
        str(release / "bin" / "inferd"),
        *("model", "pull", "--system", "--if-missing", *references),
    )
    listed = "".join(f"{model.sha256}\n" for model in EMBEDDED_MODELS.values())
    (release / STORED_LISTED).write_text(listed)


def refuse_differences(release: Path) -> None:
    """Refuse a release whose files differ from their digests.

    Raises:
        UntrustedError: some differ; each is reported before.
    """
    found = list(differences(release))
    for each in found:
        say(each)
    if found:
        raise UntrustedError(f"{release} is not as it was made")


def put_in_use(releases: Releases, release: Path) -> bool:
    """Switch to a release, and back if the service does not start with it."""
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
    """Switch to a release and its units; tell whether the service started."""
    before = releases.named(CURRENT)
    share = release / "share"
    releases.switch(release)
    try:
        if before is not None:
            remove_placed(placed(before / "share").keys() - placed(share))
        place_files(share, releases.prefix)
    except (UntrustedError, OSError, subprocess.SubprocessError) as error:
        say(f"error: {error}")
        return False
    return restart(services)


def rollback() -> int:
    """Switch to the previous release; the current one becomes the previous one."""
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
    """Compare the current release with its digests."""
    release = (PREFIX / CURRENT).resolve()
    if not release.is_dir():
        say("error: nothing is installed")
        return 2
    refuse_differences(release)
    say(f"{release.name} is as it was installed")
    return 0


def service_python() -> Path | None:
    """Find a Python that a service with ProtectHome= can run and only root can change."""
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
    """Tell whether only root may change a program, and it is outside home directories."""
    if any(python.is_relative_to(home) for home in HOMES):
        return False
    if not is_ours(str(python.parent)):
        return False
    status = python.lstat()
    return status.st_uid == 0 and not status.st_mode & 0o022


def uninstall() -> int:
    """Stop the services and remove the installed files."""
    if PREFIX.exists():
        os.close(open_directory(PREFIX))
    remove_units()
    remove_placed(placed(PREFIX / CURRENT / "share"))
    if LINK.is_symlink():
        LINK.unlink()
    reload_systemd()
    remove_older_cache()
    remove(PREFIX)
    say("removed; still there: /etc/inferd, /var/lib/inferd, /var/log/inferd, drop-ins")
    say(
        f"in {SYSTEM_UNITS}/inferd*.d, /var/lib/inferd-bridge, and the users and groups"
    )
    say("inferd and inferd-bridge")
    return 0


def remove_older_cache() -> None:
    """Remove files of the service's user, with that user's rights only."""
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
