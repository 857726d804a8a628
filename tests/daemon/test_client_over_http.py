"""The client library and bridges: who may ask, what is verified, what is no bridge."""

import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from inferd.client import (
    AsyncClient,
    Client,
    ClientError,
    NoDaemonError,
    PermissionDenied,
    ProtocolError,
)
from tests.daemon.bridge import bridge_to, command
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, mock

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemons() as make:
        made = make({"backend": [mock(tokens=["Hello"])]})
        certify(made.scratch)
        text = made.config_file.read_text()
        secured = (
            f'certificate = "{made.scratch}/cert.pem"\nkey = "{made.scratch}/key.pem"\n'
        )
        (made.scratch / "tls.toml").write_text(f"{text}\n[bridge]\n{secured}")
        yield made.start()


def certify(folder: Path) -> None:
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", *subject),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )


async def said(**place: object) -> str:
    async with AsyncClient(**place) as client:  # type: ignore[arg-type]
        return (await client.chat("hi")).text


def test_a_token_a_socket_and_a_certificate(daemon: DaemonProcess):
    token = command(daemon, "token", "add", "ada").stdout.split()[-1]
    words = ("token", "add", "operator", "--scope", "models")
    other = command(daemon, *words).stdout.split()[-1]
    path = daemon.scratch / "b.sock"
    with bridge_to(daemon, "--listen", str(path)):
        with Client(url=f"unix:{path}", token=token) as client:
            assert client.chat("hi").text == "Hello"
        with Client(url=f"unix:{path}", token=other) as client:
            with pytest.raises(PermissionDenied):
                client.chat("hi")
        assert anyio.run(lambda: said(url=f"unix:{path}", token=token)) == "Hello"
    with bridge_to(daemon, "--config", str(daemon.scratch / "tls.toml")) as bridge:
        tls = ssl.create_default_context(cafile=str(daemon.scratch / "cert.pem"))
        with Client(url=bridge.address, tls=tls) as client:
            assert client.chat("hi").text == "Hello"
        assert anyio.run(lambda: said(url=bridge.address, tls=tls)) == "Hello"
        with Client(url=bridge.address) as client:
            with pytest.raises(NoDaemonError, match="certificate"):
                client.chat("hi")
    with pytest.raises(NoDaemonError), Client(url=bridge.address) as client:
        client.chat("hi")


class OtherServer(BaseHTTPRequestHandler):
    """Answers with a page."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.send_response(302)
        self.send_header("location", "http://127.0.0.1:1/")
        self.send_header("content-length", "4")
        self.end_headers()
        self.wfile.write(b"<p>!")

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def test_another_server_is_told_and_no_redirect_is_followed():
    with HTTPServer(("127.0.0.1", 0), OtherServer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            with Client(url=url) as client:
                with pytest.raises(ProtocolError, match="302: <p>!"):
                    client.chat("hi")
            with pytest.raises(ProtocolError, match="302: <p>!"):
                anyio.run(lambda: said(url=url))
        finally:
            server.shutdown()
            thread.join()


def test_what_contradicts_itself_is_told_at_once():
    wrong: list[dict[str, Any]] = [
        {"path": "/x", "url": "http://127.0.0.1"},
        {"token": "t"},
        {"url": "http://example.org"},
        {"url": "http://127.0.0.1", "token": "a b"},
    ]
    for options in wrong:
        with pytest.raises(ValueError, match="url|token"):
            Client(**options)
        with pytest.raises(ValueError, match="url|token"):
            AsyncClient(**options)


def test_closing_a_client_ends_what_it_asked(daemon: DaemonProcess):
    with bridge_to(daemon) as bridge:
        client = Client(url=bridge.address)
        assert client.chat("hi").text == "Hello"
        client.close()
        with pytest.raises(ClientError, match="closed"):
            client.chat("hi")
