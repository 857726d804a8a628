import socket

import pytest

from inferd.bridge.http.guard import HeadRules, preflight_headers
from inferd.bridge.translation.failures import BridgeError
from tests.daemon.bridge import bridge_to
from tests.daemon.harness import PATIENCE_S

pytestmark = pytest.mark.slow

BODY = b'{"messages":[{"role":"user","content":"hi"}]}'
EVIL = (
    b"Host: evil.example:8313",
    b"Host: localhost.evil.example",
    b"Host: localhost\r\nOrigin: https://evil.example",
    b"Host: localhost\r\nOrigin: null",
    b"Host: localhost\r\nHost: evil.example",
)


def status_of(port: int, head: bytes) -> bytes:
    """Send what a browser sends for a page without asking first; give the status."""
    length = b"Content-Type: text/plain\r\nContent-Length: %d" % len(BODY)
    lines = (b"POST /v1/chat/completions HTTP/1.1", head, length, b"", BODY)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        sock.sendall(b"\r\n".join(lines))
        return sock.recv(100).split()[1]


def test_no_request_of_a_page_reaches_the_daemon(shared_daemon):
    with bridge_to(shared_daemon) as bridge:
        for head in EVIL:
            assert status_of(bridge.port, head) in (b"400", b"403")
        assert status_of(bridge.port, b"Host: localhost:1") == b"200"
    assert len(shared_daemon.logged(msg="v2_request_done")) == 1


def test_a_preflight_of_another_page_is_refused_before_it_is_answered():
    rules = HeadRules(frozenset({"localhost"}), frozenset({"https://page"}))
    asks = (b"access-control-request-method", b"POST")
    with pytest.raises(BridgeError):
        rules.check([(b"host", b"localhost"), (b"origin", b"https://evil"), asks])
    allowed = rules.check([(b"host", b"localhost"), (b"origin", b"https://page"), asks])
    assert preflight_headers(allowed)["access-control-allow-origin"] == "https://page"
