"""Other pages neither frame the page, nor ask in its name, nor read its token."""

import socket

import pytest

from inferd.bridge.page.files import HEADERS
from tests.daemon.bridge import bridge_to
from tests.daemon.harness import PATIENCE_S

pytestmark = pytest.mark.slow


def answered(port: int, target: str, *lines: str) -> bytes:
    """Send a request as a browser does; give the answer."""
    head = "\r\n".join((f"GET {target} HTTP/1.1", *lines, "Connection: close", "", ""))
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        sock.sendall(head.encode())
        return b"".join(iter(lambda: sock.recv(65536), b""))


def test_only_the_pages_own_address_asks_in_its_name(shared_daemon):
    with bridge_to(shared_daemon) as bridge:
        host = f"Host: localhost:{bridge.port}"
        own = f"Origin: http://localhost:{bridge.port}"
        info = "/server_info"
        assert b" 200 " in answered(bridge.port, info, host, own).splitlines()[0]
        for other in ("http://localhost:1", "http://evil.example", "null"):
            answer = answered(bridge.port, info, host, f"Origin: {other}")
            assert b" 403 " in answer.splitlines()[0]
            assert b"access-control" not in answer.lower()
        evil = f"evil.example:{bridge.port}"
        rebound = answered(bridge.port, info, f"Host: {evil}", f"Origin: http://{evil}")
        assert b" 403 " in rebound.splitlines()[0]


def test_a_link_elsewhere_shows_the_page_and_no_answer(shared_daemon):
    link = (
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Mode: navigate",
        "Accept: text/html",
    )
    with bridge_to(shared_daemon) as bridge:
        host = f"Host: localhost:{bridge.port}"
        page = answered(bridge.port, "/", host, *link)
        assert b" 200 " in page.splitlines()[0]
        assert b"frame-ancestors 'none'" in page
        refused = answered(bridge.port, "/v1/models", host, *link)
        assert b" 403 " in refused.splitlines()[0]


def test_no_other_page_has_the_page_as_a_window_or_a_frame():
    assert HEADERS["x-frame-options"] == "DENY"
    assert HEADERS["cross-origin-opener-policy"] == "same-origin"
    assert HEADERS["cross-origin-resource-policy"] == "same-origin"
    assert HEADERS["referrer-policy"] == "no-referrer"
