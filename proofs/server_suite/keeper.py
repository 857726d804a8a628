"""Keeps daemons for the bridges of the suite: one for each configuration, a few at once."""

import json
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, UnixStreamServer
from typing import Any, Final

from inferd.bridge.identity.token import (
    ID_BYTES,
    SECRET_BYTES,
    TokenRecord,
    make_token,
)
from inferd.bridge.identity.token_file import changing_tokens
from proofs.server_suite.arguments import Wanted, wanted
from tests.daemon.configuration import to_toml
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, MakeDaemon

MAX_DAEMONS: Final = 6
"""Daemons that run at once, each with a model of its own in memory."""
TOKENS: Final = "tokens.json"
NAMED: Final = ("test_basic",)
"""Files of tests that list all models there are, and expect one name."""


class Keeper:
    """Gives the command line of a bridge to a daemon that is configured as wanted."""

    def __init__(self, make: MakeDaemon, scratch: Path) -> None:
        self._make = make
        self._daemons: OrderedDict[str, DaemonProcess] = OrderedDict()
        self._scratch = scratch
        self.path = scratch / "keeper.sock"
        """Where shims ask."""
        self.n_started = 0
        self.key = _add_token(scratch / TOKENS)
        """A token of the bridges."""

    def command(self, arguments: list[str], test: str) -> list[str]:
        """Return the command line of a bridge; its daemon serves by then."""
        takes_any_name = not any(f"{name}.py" in test for name in NAMED)
        want = wanted(arguments, takes_any_name=takes_any_name)
        daemon = self._daemon(want.daemon)
        config = self._config(want)
        return [
            *(sys.executable, "-m", "inferd", "bridge", "--config", str(config)),
            *("--listen", f"127.0.0.1:{want.port}"),
            *("--directory", str(daemon.directory)),
        ]

    def _daemon(self, config: Mapping[str, Any]) -> DaemonProcess:
        key = json.dumps(config)
        if key not in self._daemons:
            if len(self._daemons) >= MAX_DAEMONS:
                self._daemons.popitem(last=False)[1].stop()
            self._daemons[key] = self._make(config).start()
            self.n_started += 1
        self._daemons.move_to_end(key)
        return self._daemons[key]

    def _config(self, want: Wanted) -> Path:
        path = self._scratch / "bridge.toml"
        table = {"tokens": str(self._scratch / TOKENS), **want.bridge}
        path.write_text(to_toml({"bridge": table}))
        return path


def _add_token(path: Path) -> str:
    text, token_id, digest = make_token(os.urandom(ID_BYTES + SECRET_BYTES))
    with changing_tokens(path) as tokens:
        tokens.append(TokenRecord(id=token_id, name="suite", sha256=digest))
    return text


@contextmanager
def running_keeper(scratch: Path) -> Iterator[Keeper]:
    """Serve shims while inside; then end all daemons."""
    with daemons() as make:
        keeper = Keeper(make, scratch)

        class Handler(StreamRequestHandler):
            """Answers one shim."""

            def handle(self) -> None:
                request = json.loads(self.rfile.readline())
                words = keeper.command(request["arguments"], request["test"])
                self.wfile.write(json.dumps(words).encode() + b"\n")

        with UnixStreamServer(str(keeper.path), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield keeper
            finally:
                server.shutdown()
                thread.join()
