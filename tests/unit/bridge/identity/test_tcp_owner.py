import os
import socket
from collections.abc import Iterator

import pytest

from inferd.bridge.identity.tcp_owner import TcpEnd, find_owner, owner_of

CLIENT, SERVER = TcpEnd("127.0.0.1", 43210), TcpEnd("127.0.0.1", 8313)
HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"
)


def line(state: str = "01", uid: int = 1000, inode: int = 77) -> str:
    return (
        f"   0: 0100007F:A8CA 0100007F:2079 {state} 00000000:00000000 00:00000000 "
        f"00000000  {uid}        0 {inode} 1 0000000000000000 20 4 30 10 -1"
    )


def test_the_clients_end_is_found_and_not_the_servers():
    servers = line(uid=0).replace(
        "0100007F:A8CA 0100007F:2079", "0100007F:2079 0100007F:A8CA"
    )
    assert find_owner([HEAD, servers, line()], CLIENT, SERVER) == 1000
    assert find_owner([HEAD, servers], CLIENT, SERVER) is None


@pytest.mark.parametrize("fields", [{"state": "06", "uid": 0}, {"uid": 0, "inode": 0}])
def test_an_end_that_its_process_has_left_is_nobodys(fields):
    assert find_owner([line(**fields)], CLIENT, SERVER) is None


@pytest.fixture(params=["127.0.0.1", "::1"])
def connection(request) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((request.param, 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()[:2]) as client:
            server, _ = listener.accept()
            with server:
                yield client, server


def test_the_kernel_says_that_a_connection_is_ours(connection):
    client, server = connection
    ends = [TcpEnd(*end[:2]) for end in (server.getpeername(), server.getsockname())]
    assert owner_of(server.family, *ends) == os.geteuid()
    client.close()
    assert owner_of(server.family, *ends) is None


def test_another_address_than_loopback_is_nobodys():
    assert owner_of(socket.AF_INET, TcpEnd("192.0.2.1", 5), SERVER) is None
