"""A hub on loopback, with TLS and a certificate authority of its own.

``files`` are served by path; ``behaviours`` say how badly, by path as well.
"""

import hashlib
import json
import os
import re
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

COMMIT: Final = "c0ffee" + "0" * 34
BLOCK_BYTES: Final = 16 * 1024


@dataclass
class Behaviour:
    """How a path is served; as it should be, unless a field says otherwise."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    """In addition to the usual ones, or instead of them."""
    redirect: str = ""
    sends: int | None = None
    """Bytes of the body after which ``then`` happens."""
    then: str = "drop"
    """``drop`` ends the connection, ``stall`` keeps it and sends nothing."""
    n_times: int = 1_000_000
    """Responses that are so; others are as they should be."""
    has_ranges: bool = True
    has_length: bool = True


@dataclass
class Asked:
    """A request that came."""

    path: str
    headers: dict[str, str]


class Hub:
    """The files of a hub, and what was asked of it."""

    def __init__(self, port: int, ca_file: Path) -> None:
        self.port = port
        self.ca_file = ca_file
        self.files: dict[str, bytes] = {}
        self.repositories: dict[str, dict[str, object]] = {}
        self.behaviours: dict[str, Behaviour] = {}
        self.asked: list[Asked] = []
        self.meter: Callable[[int], int] | None = None
        """Is given the bytes of a file that come next, and says how many are sent; after
        fewer the connection ends."""
        self.released = threading.Event()
        """Ends stalls."""

    def url(self, path: str, host: str = "localhost") -> str:
        return f"https://{host}:{self.port}{path}"

    @cached_property
    def endpoint(self) -> str:
        return self.url("")

    @staticmethod
    def etag_of(data: bytes) -> str:
        return '"' + hashlib.md5(data, usedforsecurity=False).hexdigest() + '"'

    def add(self, path: str, data: bytes) -> str:
        """Add a file; return its SHA-256."""
        self.files[path] = data
        return hashlib.sha256(data).hexdigest()

    def add_repository(
        self, repository: str, files: dict[str, bytes], commit: str = COMMIT
    ) -> None:
        """Add a repository, or replace it: all files with their SHA-256."""
        siblings = []
        for name, data in files.items():
            sha256 = self.add(f"/{repository}/resolve/{commit}/{name}", data)
            lfs = {"size": len(data), "sha256": sha256, "pointerSize": 134}
            entry = {"rfilename": name, "size": len(data), "blobId": "b", "lfs": lfs}
            siblings.append(entry)
        self.repositories[repository] = {
            "id": repository,
            "sha": commit,
            "siblings": siblings,
            "tags": [],
            "cardData": {"license": "apache-2.0"},
        }

    def behaviour_of(self, path: str) -> Behaviour:
        behaviour = self.behaviours.get(path)
        if behaviour is None or behaviour.n_times <= 0:
            return Behaviour()
        behaviour.n_times -= 1
        return behaviour


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.hub.asked.append(Asked(self.path, dict(self.headers)))
        behaviour = self.hub.behaviour_of(path)
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path)
        if behaviour.redirect:
            self._send(302, {"Location": behaviour.redirect}, b"", behaviour)
        elif behaviour.status != 200:
            self._send(behaviour.status, {}, b"no", behaviour)
        elif api and api[1] in self.hub.repositories:
            text = json.dumps(self.hub.repositories[api[1]]).encode()
            self._send(200, {"Content-Type": "application/json"}, text, behaviour)
        elif path in self.hub.files:
            self._send_file(self.hub.files[path], behaviour)
        else:
            self._send(404, {}, b"not found", behaviour)

    def _send_file(self, data: bytes, behaviour: Behaviour) -> None:
        etag = self.hub.etag_of(data)
        headers = {"ETag": etag, "Content-Type": "application/octet-stream"}
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        is_same = self.headers.get("If-Range", etag) == etag
        if wanted is None or not behaviour.has_ranges or not is_same:
            self._send(200, headers, data, behaviour)
            return
        begin = int(wanted[1])
        if begin >= len(data):
            self._send(416, {"Content-Range": f"bytes */{len(data)}"}, b"", behaviour)
            return
        headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        self._send(206, headers, data[begin:], behaviour)

    def _send(
        self, status: int, headers: dict[str, str], body: bytes, behaviour: Behaviour
    ) -> None:
        self.send_response(status)
        if behaviour.has_length:
            headers = {"Content-Length": str(len(body)), **headers}
        else:
            headers = {"Connection": "close", **headers}
            self.close_connection = True
        for name, value in (headers | behaviour.headers).items():
            self.send_header(name, value)
        self.end_headers()
        stop = len(body) if behaviour.sends is None else behaviour.sends
        for begin in range(0, min(stop, len(body)), BLOCK_BYTES):
            block = body[begin : min(stop, begin + BLOCK_BYTES)]
            n_bytes = self._metered(len(block), headers)
            self.wfile.write(block[:n_bytes])
            if n_bytes < len(block):
                self.close_connection = True
                return
        self.wfile.flush()
        if behaviour.sends is not None:
            if behaviour.then == "stall":
                self.hub.released.wait()
            self.close_connection = True

    def _metered(self, n_bytes: int, headers: dict[str, str]) -> int:
        if self.hub.meter is None or "ETag" not in headers:
            return n_bytes
        return self.hub.meter(n_bytes)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    tls: ssl.SSLContext

    def get_request(self):
        """Accept a connection; its own thread makes the handshake."""
        connection, address = self.socket.accept()
        wrapped = self.tls.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )
        return wrapped, address

    def handle_error(self, *_: object) -> None:
        """Clients leave as they like."""


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Run a hub while inside."""
    with TemporaryDirectory(prefix="hub-") as place:
        key, certificate = Path(place, "key.pem"), Path(place, "certificate.pem")
        make_certificate(key, certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        with _Server(("127.0.0.1", 0), _Handler) as server:
            hub = Hub(server.server_address[1], certificate)
            server.RequestHandlerClass = type("Handler", (_Handler,), {"hub": hub})
            server.tls = context
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield hub
            finally:
                hub.released.set()
                server.shutdown()
                thread.join()


def make_certificate(
    key: Path, certificate: Path, names: str = "DNS:localhost,IP:127.0.0.1"
) -> None:
    """Make a key, and a certificate that is its own authority, by default for loopback."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"),
            *("-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=test hub"),
            *("-addext", f"subjectAltName={names}"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, "OPENSSL_CONF": os.devnull},
    )
    with suppress(OSError):
        certificate.chmod(0o644)
