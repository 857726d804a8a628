import socket
import threading

import pytest
from hypothesis import given, settings, strategies as st

from inferd.client.connection.buffered_socket import BufferedSocket
from inferd.client.exchange import ConnectionLostError
from inferd.client.memfd import Memfd
from tests.fakes.hearing import receive
from tests.fakes.streams import Frame

LARGE = b'"' + b"x" * 1_000_000 + b'"\n'
"""More than the kernel holds."""


@pytest.fixture
def ends():
    """One end, and a socket at the other."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(90)
    duplex = BufferedSocket(ours, 20)
    with theirs:
        yield duplex, theirs
    duplex.close()


def all_of(sock, n_bytes):
    data = bytearray()
    while len(data) < n_bytes:
        data += sock.recv(n_bytes - len(data))
    return bytes(data)


def test_a_line_is_sent_at_once_if_the_kernel_accepts_it(ends):
    duplex, theirs = ends
    duplex.send_line(b"a\n")
    assert duplex.is_flushed
    assert theirs.recv(9) == b"a\n"


def test_buffered_bytes_are_sent_while_reading(ends):
    duplex, theirs = ends
    duplex.send_line(LARGE)
    assert not duplex.is_flushed
    reader = threading.Thread(target=all_of, args=(theirs, len(LARGE)))
    reader.start()
    while not duplex.is_flushed:
        assert duplex.read() is None
    reader.join()


def test_received_bytes_are_read_while_sending_blocks(ends):
    duplex, theirs = ends
    duplex.send_line(LARGE)
    theirs.sendall(b"answer")
    assert duplex.read() == b"answer"


def test_reading_without_waiting_may_return_none(ends):
    duplex, theirs = ends
    assert duplex.read(waits=False) is None
    theirs.sendall(b"a")
    assert duplex.read(waits=False) == b"a"


def test_the_end_is_no_bytes_and_a_reset_is_a_lost_connection(ends):
    duplex, theirs = ends
    duplex.send_line(b"a\n")
    theirs.shutdown(socket.SHUT_WR)
    assert duplex.read() == b""
    theirs.close()  # with our line unread
    with pytest.raises(ConnectionLostError):
        duplex.read()


def test_a_peer_that_reads_no_more_can_still_send(ends):
    duplex, theirs = ends
    duplex.send_line(LARGE)
    theirs.sendall(b"last words")
    theirs.shutdown(socket.SHUT_RD)
    duplex.send_line(b"more\n")
    assert duplex.is_flushed
    assert duplex.read() == b"last words"


def test_silence_times_out():
    ours, theirs = socket.socketpair()
    with theirs:
        duplex = BufferedSocket(ours, 0.01)
        with pytest.raises(TimeoutError, match=r"no data from the daemon for 0\.01 s"):
            duplex.read()
        duplex.send_line(LARGE)
        with pytest.raises(TimeoutError):
            duplex.flush()
        duplex.close()


def test_without_a_timeout_reading_waits():
    ours, theirs = socket.socketpair()
    with theirs:
        duplex = BufferedSocket(ours, None)
        threading.Timer(0, theirs.sendall, [b"a"]).start()
        assert duplex.read() == b"a"
        duplex.close()


@pytest.mark.parametrize("line", [b"{}\n", b'{"a":' + LARGE[:-1] + b"}\n"])
def test_descriptors_come_with_the_first_byte_of_their_line(ends, line):
    duplex, theirs = ends
    received: list[tuple[Frame, list[bytes]]] = []
    reader = threading.Thread(
        target=lambda: received.extend(receive(theirs) for _ in range(3))
    )
    with Memfd() as memory:
        memory.write(b"contents")
        for each in (b'{"first":1}\n', line, b'{"last":1}\n'):
            duplex.send_line(each, [memory.fd] if each == line else ())
        reader.start()
        duplex.flush()
        reader.join()
    assert [contents for _, contents in received] == [[], [b"contents"], []]


class Watched(socket.socket):
    """A socket that tells whether others could have sent whenever something was sent."""

    def watch(self, could_send) -> None:
        self.could_send = could_send
        self.seen: list[bool] = []

    def sendmsg(self, *args) -> int:
        self.seen.append(self.could_send())
        return super().sendmsg(*args)


def test_only_one_thread_sends_at_a_time():
    ours, theirs = socket.socketpair()
    with theirs, Watched(fileno=ours.detach()) as sock:
        duplex = BufferedSocket(sock, 20)
        sock.watch(lambda: not duplex._lock.locked())
        for send in (duplex.read, duplex.flush):
            duplex.send_line(LARGE)
            reader = threading.Thread(target=all_of, args=(theirs, len(LARGE)))
            reader.start()
            while not duplex.is_flushed:
                send()
            reader.join()
        assert len(sock.seen) > 4
        assert not any(sock.seen)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 300_000), min_size=2, max_size=4))
def test_no_line_of_one_thread_cuts_that_of_another(sizes):
    ours, theirs = socket.socketpair()
    duplex = BufferedSocket(ours, 20)
    lines = [bytes([number]) * size for number, size in enumerate(sizes, 97)]

    def send(line):
        duplex.send_line(line)
        duplex.flush()

    threads = [threading.Thread(target=send, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    with theirs:
        data = all_of(theirs, sum(sizes))
    for thread in threads:
        thread.join()
    duplex.close()
    assert all(line in data for line in lines)
