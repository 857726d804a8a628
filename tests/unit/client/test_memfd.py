import errno
import fcntl
import os
import socket

import pytest
from hypothesis import given, settings, strategies as st

from inferd.client.memfd import READ_BYTES, Memfd, scm_rights


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=99)))
def test_the_content_can_be_read_through_the_descriptor(blocks):
    with Memfd() as memory:
        for block in blocks:
            memory.write(block)
        memory.seal()
        assert memory.n_bytes == os.fstat(memory.fd).st_size
        assert os.pread(memory.fd, 10_000, 0) == b"".join(blocks)


def test_it_is_read_back_in_blocks():
    with Memfd() as memory:
        memory.write(bytes(READ_BYTES) + b"rest")
        assert list(memory.blocks()) == [bytes(READ_BYTES), b"rest"]


def test_a_sealed_memfd_cannot_be_changed():
    with Memfd() as memory:
        memory.write(b"a")
        memory.seal()
        with pytest.raises(PermissionError):
            os.pwrite(memory.fd, b"b", 0)
        for n_bytes in (0, 2):
            with pytest.raises(PermissionError):
                os.ftruncate(memory.fd, n_bytes)
        with pytest.raises(PermissionError):
            fcntl.fcntl(memory.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)


def test_its_descriptor_is_closed():
    with Memfd() as memory:
        fd = memory.fd
    with pytest.raises(OSError) as caught:  # noqa: PT011  # by its number
        os.fstat(fd)
    assert caught.value.errno == errno.EBADF


def test_rights_carry_descriptors_or_nothing():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendmsg([b"a"], scm_rights([0, 1]))
        ours.sendmsg([b"b"], scm_rights([]))
        _, fds, _, _ = socket.recv_fds(theirs, 1, 9)
        assert len(fds) == 2
        assert socket.recv_fds(theirs, 1, 9)[:2] == (b"b", [])
    for fd in fds:
        os.close(fd)
