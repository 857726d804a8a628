import os
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from inferd.bridge.identity.tcp_owner import (
    ConnectionOwners,
    TcpEnd,
    find_owner,
    query_of,
)
from tests.cases import each_case

CLIENT, SERVER = TcpEnd("127.0.0.1", 43210), TcpEnd("127.0.0.1", 8313)
SOCKETS = ("127.0.0.1", "::1", "::ffff:127.0.0.1")


def found(  # noqa: PLR0913  # what a message tells
    client: TcpEnd = CLIENT,
    server: TcpEnd = SERVER,
    *,
    kind: int = 20,
    state: int = 1,
    uid: int = 1000,
    inode: int = 77,
) -> bytes:
    """Write what the kernel says, as ``linux/inet_diag.h`` has it."""
    ports = struct.pack("!HH", client.port, server.port)
    ends = b"".join(
        socket.inet_aton(end.address).ljust(16, b"\0") for end in (client, server)
    )
    counts = struct.pack("=IIIII", 0, 0, 0, uid, inode)
    body = bytes([socket.AF_INET, state, 0, 0]) + ports + ends + bytes(12) + counts
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def test_the_owner_of_the_client_s_end_is_found():
    assert find_owner(found(), CLIENT, SERVER) == 1000


@each_case(
    "answer",
    [
        found(state=6, uid=0),  # its process has left it
        found(uid=0, inode=0),
        found(SERVER, CLIENT, uid=0),
        found(server=TcpEnd("127.0.0.1", 0), state=10),  # it listens at that port
        found(kind=2),
        found()[:-1],
    ],
    ids=["left", "no inode", "the server's end", "listens", "an error", "cut"],
)
def test_what_is_not_that_connection_or_has_been_left_is_nobodys(answer):
    assert find_owner(answer, CLIENT, SERVER) is None


@given(st.binary(max_size=200))
def test_any_answer_is_read(answer):
    find_owner(answer, CLIENT, SERVER)


@pytest.fixture(params=SOCKETS)
def connection(request) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection to a listener of both families."""
    with socket.create_server(
        ("::", 0), family=socket.AF_INET6, dualstack_ipv6=True
    ) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection((request.param, port)) as client:
            server, _ = listener.accept()
            with server:
                yield client, server


def test_the_kernel_says_that_a_connection_is_ours(connection):
    client, server = connection
    ends = [TcpEnd(*end[:2]) for end in (server.getpeername(), server.getsockname())]
    assert ConnectionOwners().owner_of(*ends) == os.geteuid()
    client.close()
    assert ConnectionOwners().owner_of(*ends) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::"])
def test_the_kernel_knows_a_socket_that_listens(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        listening = TcpEnd(*listener.getsockname()[:2])
        assert ConnectionOwners().check(listening)
    assert not ConnectionOwners().check(listening)


def test_a_kernel_that_does_not_answer_is_asked_once(connection, monkeypatch):
    _, server = connection
    ends = [TcpEnd(*end[:2]) for end in (server.getpeername(), server.getsockname())]
    owners, asked = ConnectionOwners(), []

    def no_socket(*kind):
        asked.append(kind)
        raise OSError

    monkeypatch.setattr(socket, "socket", no_socket)
    assert not owners.check(ends[1])
    assert owners.owner_of(*ends) is None
    assert len(asked) == 1


def test_another_address_than_loopback_is_nobodys():
    assert ConnectionOwners().owner_of(TcpEnd("192.0.2.1", 5), SERVER) is None
    assert ConnectionOwners().owner_of(TcpEnd("not an address", 5), SERVER) is None


def test_the_question_names_one_connection():
    mapped = [TcpEnd(f"::ffff:{end.address}", end.port) for end in (CLIENT, SERVER)]
    assert query_of(*mapped) == query_of(CLIENT, SERVER)
    assert len(query_of(CLIENT, SERVER)) == 16 + 8 + 48
