import os
import socket

import pytest

from inferd.scm_rights import ReceivedFds, receive_fds
from tests.fakes.fds import content_of, memfds, n_open


@pytest.fixture
def pair():
    n_before = n_open()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs
    assert n_open() == n_before


def test_descriptors_come_in_order_with_their_bytes_and_close_on_exec(pair):
    ours, theirs = pair
    with memfds(b"a", b"b") as fds:
        socket.send_fds(theirs, [b"hello"], fds)
    received = receive_fds(ours, 100, 2)
    assert (received.data, received.is_cut) == (b"hello", False)
    assert [content_of(fd) for fd in received.fds] == [b"a", b"b"]
    assert not any(os.get_inheritable(fd) for fd in received.fds)
    for fd in received.fds:
        os.close(fd)


def test_descriptors_over_the_bound_are_discarded_and_reported(pair):
    ours, theirs = pair
    with memfds(b"") as fds:
        socket.send_fds(theirs, [b"hello"], fds)
    assert receive_fds(ours, 100, 0) == ReceivedFds(b"hello", (), is_cut=True)


def test_bytes_without_descriptors_are_received_and_so_is_the_end(pair):
    ours, theirs = pair
    theirs.sendall(b"hello")
    theirs.shutdown(socket.SHUT_WR)
    assert receive_fds(ours, 100, 2) == ReceivedFds(b"hello", (), is_cut=False)
    assert receive_fds(ours, 100, 2) == ReceivedFds(b"", (), is_cut=False)


def test_flags_are_those_of_the_system_call(pair):
    with pytest.raises(BlockingIOError):
        receive_fds(pair[0], 100, 2, socket.MSG_DONTWAIT)
