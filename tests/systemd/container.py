"""A throw-away machine with a real systemd: an overlay of this one, booted by nspawn.

Nothing done in it reaches this machine. It has no network once it is booted.
"""

import os
import shutil
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import trio

from tests.fakes.gguf_bytes import gguf
from tools.releases import seal

ROOT = Path(__file__).resolve().parents[2]
BOOT_S = 120.0
PREFIX = "/opt/inferd"
ENVIRON = ("env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
LANDLOCK = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
QUIET = (
    "systemd.unit=basic.target",
    "systemd.mask=systemd-sysctl.service",
    "systemd.mask=systemd-udevd.service",
    "systemd.mask=systemd-modules-load.service",
)


LIBRARIES = (
    *("attr", "attrs", "idna", "msgspec", "outcome", "prometheus_client", "sniffio"),
    *("sortedcontainers", "structlog", "trio"),
    *(
        "anyio",
        "h11",
        "h2",
        "hpack",
        "hypercorn",
        "hyperframe",
        "priority",
        "starlette",
    ),
    *("multipart.py", "typing_extensions.py", "wsproto"),
    *("httpcore2", "truststore"),
    *("alembic", "greenlet", "mako", "markupsafe", "sqlalchemy"),
    *("av", "av.libs", "PIL", "pillow.libs"),
)
"""What the daemon, the bridge and its decoders import, and what that does."""
COMMAND = """#!/usr/bin/python3 -P
import sys
from inferd.cli import main
sys.exit(main())
"""


def missing() -> str:
    """Say what keeps this machine from booting a container; empty if nothing does."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("systemd-nspawn") is None:
        return "needs systemd-nspawn (package systemd-container)"
    return ""


class Container:
    """A booted container."""

    def __init__(self, leader: int) -> None:
        self._leader = leader

    def run(
        self,
        *command: str,
        check: bool = True,
        stdin: str = "",
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        return subprocess.run(
            ["nsenter", "-t", str(self._leader), "-a", *ENVIRON, *command],
            input=stdin,
            capture_output=True,
            text=True,
            check=check,
            timeout=timeout_s,
        )

    def write_model(self, path: str) -> str:
        """Write a model file without weights that only its owner reads; give it in base64."""
        text = b64encode(gguf()).decode()
        self.run("sh", "-c", f"umask 077; echo {text} | base64 -d > {path}")
        return text

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command inside that reads standard input."""
        return subprocess.Popen(
            ["nsenter", "-t", str(self._leader), "-a", *ENVIRON, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def show(self, *properties: str, unit: str = "inferd") -> dict[str, str]:
        """Ask systemd for properties of a service."""
        names = [f"--property={name}" for name in properties]
        lines = self.run("systemctl", "show", unit, *names).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)


@contextmanager
def overlay(scratch: Path) -> Iterator[Path]:
    """Mount a writable copy of this machine's root, kept in memory."""
    with ExitStack() as mounts:
        mount(mounts, scratch, "-t", "tmpfs", "-o", "size=2g", "tmpfs")
        upper, work, merged = (scratch / name for name in ("upper", "work", "merged"))
        for directory in (upper, work, merged):
            directory.mkdir()
        layers = f"lowerdir=/,upperdir={upper},workdir={work}"
        mount(mounts, merged, "-t", "overlay", "-o", layers, "overlay")
        yield merged


def mount(mounts: ExitStack, target: Path, *arguments: str) -> None:
    """Mount something until the stack unwinds."""
    subprocess.run(["mount", *arguments, str(target)], check=True)
    mounts.callback(subprocess.run, ["umount", "--lazy", str(target)], check=False)


def install(root: Path) -> None:
    """Run `make install` in an overlay, with this machine's network and caches."""
    with ExitStack() as mounts:
        for name in ("proc", "dev"):
            mount(mounts, root / name, "--rbind", f"/{name}")
        result = subprocess.run(
            ["chroot", str(root), "make", "-C", str(ROOT), "install"],
            env={**os.environ, "PYTHON": "/usr/bin/python3"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 0, result.stdout + result.stderr


def place(root: Path) -> None:
    """Put the daemon and its units into an overlay, without models or a download.

    The machine's own Python runs it, with the libraries of the one that runs the tests.
    """
    for number in (1, 2):
        place_release(root, number)
    path = root / "usr/lib/python3/dist-packages/inferd-test.pth"
    path.write_text(f"{PREFIX}/current/lib\n")
    shutil.copy(Path(__file__).with_name("storm.py"), root / "opt")
    shutil.copytree(ROOT / "tools", root / "opt/source/tools")
    (root / "opt/source/inferd").symlink_to(f"{PREFIX}/releases/0-1/lib/inferd")
    subprocess.run(["chroot", str(root), *use_release(1)], check=True)


def place_release(root: Path, number: int) -> None:
    """Put a release into an overlay as `make install` would, in use or not."""
    release = root / f"opt/inferd/releases/0-{number}"
    site = Path(trio.__file__).parents[1]
    (release / "lib").mkdir(parents=True)
    shutil.copytree(ROOT / "inferd", release / "lib" / "inferd")
    for name in LIBRARIES:
        place_library(site / name, release / "lib")
    command = release / "bin" / "inferd"
    command.parent.mkdir()
    command.write_text(COMMAND)
    command.chmod(0o755)
    shutil.copytree(ROOT / "systemd", release / "share" / "systemd")
    shutil.copy(ROOT / "README.md", release / "share")
    shutil.copytree(ROOT / "share", release / "share", dirs_exist_ok=True)
    seal(release)


def place_library(package: Path, target: Path) -> None:
    """Put a library and its metadata into a directory."""
    copy = shutil.copytree if package.is_dir() else shutil.copy
    copy(package, target / package.name)
    for metadata in package.parent.glob(f"{package.stem}-*.dist-info"):
        shutil.copytree(metadata, target / metadata.name, dirs_exist_ok=True)


def use_release(number: int) -> tuple[str, ...]:
    """Write the command that puts a release in use, as `make install` does."""
    releases = "install.Releases(install.PREFIX)"
    return tool(f"put_in_use({releases}, install.PREFIX / 'releases/0-{number}')")


def tool(step: str) -> tuple[str, ...]:
    """Write the command that does a step of `make install` or another target."""
    program = f"from tools import install; install.own_environment(); install.{step}"
    return ("env", "PYTHONPATH=/opt/source", "/usr/bin/python3", "-B", "-c", program)


@contextmanager
def booted(root: Path) -> Iterator[Container]:
    """Boot an overlay; power it off on leaving."""
    command = [
        *("systemd-nspawn", "--quiet", "--directory", str(root), "--private-network"),
        *("--register=no", "--keep-unit", "--machine", f"inferd-{os.getpid()}"),
        f"--system-call-filter={' '.join(LANDLOCK)}",  # nspawn keeps them from all else
        # the container has a /tmp of its own
        *([f"--bind-ro={ROOT}"] if ROOT.is_relative_to("/tmp") else []),  # noqa: S108  # that of a checkout
        *("--console=passive", "--boot", *QUIET),
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as nspawn:
        try:
            yield Container(wait_booted(nspawn.pid))
        finally:
            nspawn.terminate()


def wait_booted(nspawn: int) -> int:
    """Wait until systemd is up; give its process id out here."""
    deadline = time.monotonic() + BOOT_S
    while time.monotonic() < deadline:
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(nspawn)],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.stdout.strip():
            leader = int(found.stdout.split()[0])
            state = Container(leader).run("systemctl", "is-system-running", check=False)
            if state.stdout.strip() in ("running", "degraded"):
                return leader
        time.sleep(0.1)
    raise TimeoutError("systemd did not come up in the container")
