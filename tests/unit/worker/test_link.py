import socket
from threading import Barrier, Thread

import pytest

from inferd.config import MockSettings
from inferd.ipc import Alive, Drop, Load, Refused, Run
from inferd.pipe import BrokenLinkError, MessageSplitter, decode_from_worker, encode
from inferd.worker.link import Link

LOAD = Load(settings=MockSettings(name="m"), n_slots=1)


@pytest.fixture
def ends():
    """The daemon's socket, and the worker's link."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, Link(theirs)


def test_messages_come_one_at_a_time_and_in_order(ends):
    ours, link = ends
    ours.sendall(encode(LOAD) + encode(Run(ticket=1)) + encode(Drop(ticket=1)))
    assert [link.receive() for _ in range(3)] == [LOAD, Run(ticket=1), Drop(ticket=1)]


def test_a_message_in_pieces_is_waited_for(ends):
    ours, link = ends
    data = encode(LOAD)

    def dribble():
        for byte in data:
            ours.sendall(bytes([byte]))

    thread = Thread(target=dribble)
    thread.start()
    assert link.receive() == LOAD
    thread.join()


@pytest.mark.parametrize("half", [b"", encode(LOAD)[:-1]])
def test_a_daemon_that_is_gone_has_nothing_more_to_say(ends, half):
    ours, link = ends
    ours.sendall(half)
    ours.close()
    assert link.receive() is None


def test_a_daemon_that_is_gone_unheard_has_nothing_more_to_say(ends):
    ours, link = ends
    link.send(Alive())
    ours.close()
    assert link.receive() is None


def test_a_daemon_that_talks_nonsense_is_not_believed(ends):
    ours, link = ends
    ours.sendall(b"\x01\x00\x00\x00\xc0")
    with pytest.raises(BrokenLinkError):
        link.receive()


def test_messages_of_many_threads_stay_whole(ends):
    ours, link = ends
    texts = [str(n) * 300_000 for n in range(4)]
    together = Barrier(len(texts))

    def send(ticket):
        together.wait()
        link.send(Refused(ticket=ticket, reason=texts[ticket]))

    threads = [Thread(target=send, args=(ticket,)) for ticket in range(len(texts))]
    for thread in threads:
        thread.start()
    splitter = MessageSplitter()
    received: dict[int, str] = {}
    while len(received) < len(texts):
        splitter.feed(ours.recv(65536))
        for message in map(decode_from_worker, iter(splitter.next_payload, None)):
            assert isinstance(message, Refused)
            received[message.ticket] = message.reason
    for thread in threads:
        thread.join()
    assert [received[ticket] for ticket in range(len(texts))] == texts
