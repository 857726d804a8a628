import errno
import os
import socket

import pytest

from inferd.ipc.spawner import MAX_PACKET_BYTES, decode_number, encode_number
from inferd.worker.spawner import children
from inferd.worker.spawner.children import Children


def answer_to(packet: bytes, n_fds: int) -> int | None:
    """Order something that is refused; give the answer, once all descriptors are closed."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    near, far = socket.socketpair(type=socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    with ours, theirs, near:
        with far:
            socket.send_fds(ours, [packet], [far.fileno(), *[write] * (n_fds - 1)])
        os.close(write)
        ours.close()
        assert Children(theirs, ["no.such.program"]).serve() is None
        with os.fdopen(read, "rb") as pipe:
            assert pipe.read() == b""  # it would wait for one that is left open
        return decode_number(near.recv(MAX_PACKET_BYTES))


def test_an_order_for_another_program_or_without_its_descriptors_forks_nothing():
    assert answer_to(encode_number(1), 3) == -errno.ENOEXEC
    assert answer_to(encode_number(-1), 4) == -errno.ENOEXEC
    assert answer_to(b"inferd.worker.mock", 3) == -errno.ENOEXEC
    assert answer_to(encode_number(0), 2) is None


def test_there_are_only_so_many_workers_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(children, "MAX_REMOTE_WORKERS", 0)
    assert answer_to(encode_number(0), 3) == -errno.EAGAIN
