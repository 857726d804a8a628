"""Drive a real bridge from outside: its process, its address, its log."""

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from openai import AsyncOpenAI, OpenAI

from tests.daemon import preloaded
from tests.daemon.configuration import clean_environ
from tests.daemon.harness import PATIENCE_S, DaemonProcess, eventually
from tests.daemon.preloaded import COMMAND, Preloaded

BRIDGE: Final = (*COMMAND, "bridge")


class BridgeProcess:
    """A bridge to a daemon, at a port that the kernel chooses.

    Args:
        daemon: its configuration and directory are used.
        options: of the command line.
    """

    def __init__(self, daemon: DaemonProcess, *options: str) -> None:
        self.daemon = daemon
        self.tokens = daemon.scratch / "tokens.json"
        self._log = daemon.scratch / f"bridge-{uuid.uuid4().hex}.stderr"
        listen = () if "--listen" in options else ("--listen", "127.0.0.1:0")
        config = ("--config", str(daemon.config_file))
        environ = _environ(daemon)
        with self._log.open("wb") as stderr:
            self.process = bridges().start(
                [*BRIDGE, *config, *listen, *options], environ, stderr.fileno()
            )
        assert eventually(
            lambda: bool(self.logged("bridge.listening")) or self.has_ended
        )
        assert not self.has_ended, self.stderr()

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    @property
    def address(self) -> str:
        """Where it listens: a URL, or a path."""
        return str(self.logged("bridge.listening")[0]["address"])

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.address.rpartition(":")[2])

    def stderr(self) -> str:
        """Give all that it wrote to stderr."""
        return self._log.read_text()

    def logged(self, msg: str) -> list[dict[str, Any]]:
        """Give the lines of its log with this event that there are now."""
        lines = [json.loads(line) for line in self.stderr().splitlines() if line]
        return [line for line in lines if line["msg"] == msg]

    def client(self, **options: Any) -> OpenAI:
        """Make a client as its users have it, which repeats nothing by itself."""
        return OpenAI(**self._options(options))

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """Make the same for async programs."""
        return AsyncOpenAI(**self._options(options))

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        url = f"{self.address}/v1"
        return {"base_url": url, "api_key": "none", "max_retries": 0, **options}

    def stop(self) -> int:
        """Ask it to end and wait; give the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def finish(self) -> None:
        """End it, and check that it met no bug."""
        try:
            if not self.has_ended:
                assert self.stop() == 0
            assert "Traceback" not in self.stderr(), self.stderr()
            assert not self.logged("http_request.failed")
            assert not self.logged("http_connection.failed")
        finally:
            self.process.kill()
            self.process.wait()


@cache
def bridges() -> Preloaded:
    """Give the process that bridges are forks of."""
    return Preloaded(clean_environ(), preloaded.BRIDGE)


@contextmanager
def bridge_to(daemon: DaemonProcess, *options: str) -> Iterator[BridgeProcess]:
    """Give a bridge that ends with the block."""
    bridge = BridgeProcess(daemon, *options)
    try:
        yield bridge
    finally:
        bridge.finish()


@contextmanager
def helper_of(daemon: DaemonProcess) -> Iterator[subprocess.Popen[bytes]]:
    """Run a helper beside a daemon, with a store of its own."""
    words = ("bridge", "helper", "--config", str(daemon.config_file))
    with (daemon.scratch / "helper.stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "inferd", *words],
            env={**clean_environ(), "INFERD_MODELS": str(daemon.scratch / "models")},
            stderr=stderr,
        )
    try:
        assert eventually((daemon.directory / "bridge_helper.sock").exists)
        yield process
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert not (daemon.directory / "bridge_helper.sock").exists()
    finally:
        process.kill()
        process.wait()


def command(daemon: DaemonProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the bridge with a daemon's configuration."""
    config = ("--config", str(daemon.config_file))
    return subprocess.run(
        [*BRIDGE, *words, *config],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=_environ(daemon),
        check=False,
    )


def _environ(daemon: DaemonProcess) -> dict[str, str]:
    """Keep chats and tokens of tests where those of the user are not."""
    return {
        **clean_environ(),
        "XDG_STATE_HOME": str(daemon.scratch / "state"),
        "INFERD_BRIDGE_TOKENS": str(daemon.scratch / "tokens.json"),
    }


def no_requests(daemon: DaemonProcess) -> bool:
    """Wait until the daemon has no request."""
    with daemon.admin() as admin:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if not admin.order("requests")["requests"]:
                return True
    return False
