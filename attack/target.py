"""The daemon that is attacked: one started from a checkout, or a service that runs."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

from attack.measures import Holdings
from attack.users import shared_group
from fuzz.process import n_fds, rss_bytes
from tests.daemon.configuration import to_toml
from tests.daemon.harness import WORKER, Config, DaemonProcess
from torture.litter import children_of

ROOT: Final = Path(__file__).resolve().parents[1]
MB: Final = 1e6
CALM_S: Final = 10.0
"""Seconds in which what an attack left goes."""
STEP_S: Final = 0.2
START_S: Final = 120.0
"""Seconds in which a service starts."""


class Target(Protocol):
    """A daemon."""

    @property
    def directory(self) -> Path:
        """Where its sockets are."""

    @property
    def pid(self) -> int:
        """Its process id."""


def python_of(checkout: Path) -> str:
    """Give the Python that has a checkout's package installed."""
    return str(checkout / ".venv" / "bin" / "python")


def holdings(target: Target) -> Holdings:
    """Look at what a daemon has; nothing, once it has ended."""
    try:
        return Holdings(
            workers=workers_of(target.pid),
            rss_mb=round(rss_bytes(target.pid) / MB, 1),
            n_fds=n_fds(target.pid),
        )
    except OSError:
        return Holdings(workers=[], rss_mb=0.0, n_fds=0)


def calmed(target: Target, n_fds: int) -> Holdings:
    """Look until there are no more descriptors than so many, for a while."""
    deadline = time.monotonic() + CALM_S
    while (now := holdings(target)).n_fds > n_fds:
        if time.monotonic() > deadline:
            break
        time.sleep(STEP_S)
    return now


def workers_of(pid: int) -> list[int]:
    """List the workers that a daemon has started, which hold its models."""
    return sorted(child for child in children_of(pid) if WORKER.search(_command(child)))


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


class Started(DaemonProcess):
    """A daemon of a checkout's, whose sockets a group may use.

    Args:
        checkout: whose code it runs.
        config: tables of its configuration.
        environ: variables to add to its environment.
        prefix: words before its command, which end in it by ``exec``.
    """

    def __init__(
        self,
        checkout: Path,
        config: Config,
        *,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        listen = {"group": shared_group().gr_name, **config.get("listen", {})}
        super().__init__({**config, "listen": listen}, environ=environ)
        self._checkout = checkout
        self._prefix = prefix
        self.scratch.chmod(0o755)
        self.directory.mkdir(mode=0o755)
        self.directory.chmod(0o755)

    def spawn(self) -> None:
        """Start it, and wait for nothing."""
        command = [python_of(self._checkout), "-m", "inferd", "serve", "--config"]
        with self._log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*self._prefix, *command, str(self.config_file)],
                cwd=self._checkout,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=self._environ,
            )

    def kept_log(self) -> str:
        """Give all that its log's files have."""
        files = sorted(self.log_file.parent.glob("inferd.ndjson*"))
        return "".join(path.read_text() for path in files)


class Running:
    """A service that somebody else has started.

    Args:
        directory: where its sockets are.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @cached_property
    def pid(self) -> int:
        """Its process id, when it was first asked for."""
        return pid_at(self.directory)


class Service(Running):
    """A service of systemd's, which is given the configuration of each attack.

    Args:
        directory: where its sockets are.
        unit: its name.
        config_file: which it reads; overwritten.
    """

    def __init__(self, directory: Path, unit: str, config_file: Path) -> None:
        super().__init__(directory)
        self._unit = unit
        self._config_file = config_file

    def restart(self, config: Config) -> Running:
        """Restart it with a configuration; give the process that runs now.

        Raises:
            subprocess.CalledProcessError: it did not start.
        """
        self._config_file.parent.mkdir(exist_ok=True)
        self._config_file.write_text(to_toml(config))
        command = ["systemctl", "restart", self._unit]
        subprocess.run(command, check=True, timeout=START_S)
        return Running(self.directory)


def pid_at(directory: Path) -> int:
    """Find the process that holds the lock beside a service's sockets."""
    lock = (directory / "inferd.lock").stat()
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "->":
            continue  # who waits for it
        if int(fields[5].split(":")[2]) == lock.st_ino:
            return int(fields[4])
    raise FileNotFoundError(f"nobody holds the lock in {directory}")


@contextmanager
def started(daemon: Started, faults: list[str]) -> Iterator[Started]:
    """Run a daemon while inside; then end it.

    Args:
        daemon: to run.
        faults: is told where it did not end as it should, or its log tells of a bug.
    """
    try:
        yield daemon.start()
    finally:
        try:
            daemon.finish()
        except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
            faults.append(str(error)[:400])


def is_root() -> bool:
    """Tell whether we can be other users."""
    return os.geteuid() == 0
