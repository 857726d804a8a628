import os
import socket
import subprocess
import sys

import pytest

from inferd.bridge.identity.caller import Callers, HttpPeer
from inferd.bridge.identity.tcp_owner import ConnectionOwners, TcpEnd
from inferd.bridge.identity.token_file import ApiTokens
from inferd.bridge.translation.failures import BridgeError, Reason
from tests.daemon.bridge import bridge_to
from tests.daemon.harness import PATIENCE_S
from tests.daemon.users import needs_root
from tests.fakes.impostor import STRANGER_UID

ASK = """
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1]).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def status(url: str, uid: int) -> int:
    """Ask as a user; give the status."""
    asked = subprocess.run(
        [sys.executable, "-I", "-c", ASK, url],
        user=uid,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return int(asked.stdout)


@pytest.mark.slow
@needs_root
def test_another_user_is_refused_on_loopback(shared_daemon):
    with bridge_to(shared_daemon) as bridge:
        url = f"{bridge.address}/v1/models"
        assert status(url, os.geteuid()) == 200
        assert status(url, STRANGER_UID) == 401
        assert bridge.logged("http_request.done")[-1]["peer_uid"] == STRANGER_UID


@pytest.mark.parametrize("uid", [0, None])
def test_the_bridges_own_user_needs_a_token_where_that_is_set(tmp_path, uid):
    callers = Callers(ApiTokens(tmp_path / "tokens"), own_uid=None)
    with pytest.raises(BridgeError) as caught:
        callers.identify("", HttpPeer(uid=uid))
    assert caught.value.reason is Reason.UNAUTHENTICATED


def test_a_connection_that_its_process_has_left_is_nobodys():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with server:
            ends = TcpEnd(*server.getpeername()), TcpEnd(*server.getsockname())
            assert ConnectionOwners().owner_of(*ends) == os.geteuid()
            server.sendall(b"x")
            client.close()  # the kernel lists what is left of it as root's
            assert ConnectionOwners().owner_of(*ends) is None
