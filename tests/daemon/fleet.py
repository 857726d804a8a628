"""Several real daemons with their bridges, behind a real smg or haproxy."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from inferd.bridge.identity import token
from inferd.bridge.identity.token_file import changing_tokens
from tests.daemon.bridge import BridgeProcess
from tests.daemon.configuration import clean_environ
from tests.daemon.harness import PATIENCE_S, DaemonProcess, eventually, mock
from tests.daemon.preloaded import COMMAND

FLEET: Final = (*COMMAND, "fleet")
SMG_S: Final = 60.0
"""Seconds until smg has its members."""


def add_token(path: Path, name: str, scope: str = "inference") -> str:
    """Make a token in a file; return it."""
    text, token_id, digest = token.make_token(
        os.urandom(token.ID_BYTES + token.SECRET_BYTES)
    )
    fields = {"id": token_id, "name": name, "sha256": digest, "scopes": [scope]}
    with changing_tokens(path) as tokens:
        tokens.append(token.parse_record(fields))
    return text


def free_port() -> int:
    """Find a port that nobody uses now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class BridgeFleet:
    """Daemons, each with a bridge that needs tokens, and a fleet file for them.

    Args:
        directory: for its files.
        n_members: how many.
        backend: the settings of the scripted backend of each.
    """

    def __init__(
        self, directory: Path, n_members: int, backend: dict[str, Any] | None = None
    ) -> None:
        self.directory = directory
        self.file = directory / "fleet.toml"
        self.tokens = directory / "tokens.json"
        self.port, self.metrics_port = free_port(), free_port()
        self.discovery = add_token(self.tokens, "entry", "discovery")
        (directory / "token").touch(0o600)
        (directory / "token").write_text(self.discovery)
        self.daemons: list[DaemonProcess] = []
        self.bridges: list[BridgeProcess] = []
        self._backend = backend or mock(tokens=["hi"])
        for _ in range(n_members):
            self._add()
        self.write()

    def _add(self) -> None:
        settings = {"tokens": str(self.tokens), "own_user": False}
        daemon = DaemonProcess({"backend": [self._backend], "bridge": settings})
        self.daemons.append(daemon.start())
        self.bridges.append(BridgeProcess(daemon))

    def restart(self, index: int) -> None:
        """Start the bridge and the daemon of a member again, at the same address."""
        self.daemons[index].start()
        self.bridges[index] = BridgeProcess(
            self.daemons[index], "--listen", f"127.0.0.1:{self.bridges[index].port}"
        )

    def kill(self, index: int) -> None:
        """Kill the bridge and the daemon of a member."""
        self.bridges[index].process.kill()
        self.bridges[index].process.wait()
        self.daemons[index].send_signal(signal.SIGKILL)
        self.daemons[index].wait()
        assert self.daemons[index].workers_end()

    def write(self) -> None:
        """Write the fleet file."""
        head = (
            'token_file = "token"\nhaproxy_file = "haproxy.cfg"\n'
            f'listen = "127.0.0.1:{self.port}"\n'
            f'metrics_listen = "127.0.0.1:{self.metrics_port}"\n'
        )
        members = (
            f'[[member]]\nname = "m{index}"\nurl = "{bridge.address}"\n'
            for index, bridge in enumerate(self.bridges)
        )
        self.file.write_text(head + "".join(members))

    @property
    def address(self) -> str:
        """Of the entry."""
        return f"http://127.0.0.1:{self.port}"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ``inferd fleet``."""
        return subprocess.run(
            [*FLEET, *words, "--fleet", str(self.file)],
            capture_output=True,
            text=True,
            timeout=10 * PATIENCE_S,
            env=clean_environ(),
            check=False,
        )

    @contextmanager
    def smg(self, *options: str) -> Iterator[None]:
        """Run smg in front, as ``inferd fleet serve`` does."""
        words = [*FLEET, "serve", "--fleet", str(self.file), "--", *options]
        with self._entry(words):
            yield

    @contextmanager
    def haproxy(self) -> Iterator[None]:
        """Run haproxy in front, with the configuration that is written."""
        assert self.run("write").returncode == 0
        with self._entry(["haproxy", "-db", "-f", str(self.directory / "haproxy.cfg")]):
            yield

    @contextmanager
    def _entry(self, words: Sequence[str]) -> Iterator[None]:
        with (self.directory / "entry.log").open("wb") as log:
            process = subprocess.Popen(
                words, env=clean_environ(), stdout=log, stderr=log
            )
        try:
            assert eventually(
                lambda: self._answers() or process.poll() is not None, within_s=SMG_S
            )
            assert process.poll() is None, (self.directory / "entry.log").read_text()
            yield
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _answers(self) -> bool:
        """Whether the entry has all members."""
        try:
            readiness = httpx2.get(f"{self.address}/readiness").json()
        except httpx2.HTTPError:
            return False
        except ValueError:  # haproxy passes it on, to a bridge that has no such route
            return True
        wanted = len(self.bridges)
        return bool(readiness.get("healthy_workers", wanted) >= wanted)

    def finish(self) -> None:
        """End all that runs, and check that it behaved."""
        for bridge in self.bridges:
            bridge.finish()
        for daemon in self.daemons:
            daemon.finish()


@contextmanager
def fleet_of(
    directory: Path, n_members: int, backend: dict[str, Any] | None = None
) -> Iterator[BridgeFleet]:
    """Run a fleet while inside."""
    fleet = BridgeFleet(directory, n_members, backend)
    try:
        yield fleet
    finally:
        fleet.finish()


def chat(*texts: str, model: str = "mock", **fields: Any) -> dict[str, Any]:
    """Make the body of a request: texts of the user and of answers, in turns."""
    roles = ("user", "assistant")
    messages = [
        {"role": roles[index % 2], "content": text} for index, text in enumerate(texts)
    ]
    return {"model": model, "messages": messages, **fields}


def head(text: str) -> dict[str, str]:
    """Make the header of a token; none for an empty one."""
    return {"authorization": f"Bearer {text}"} if text else {}
