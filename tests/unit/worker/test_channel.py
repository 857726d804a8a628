import os
import socket
from threading import Barrier, Thread

import pytest

from inferd.config.kinds.mock import MockSettings
from inferd.ipc.encoding import (
    MalformedMessageError,
    MessageSplitter,
    decode_from_worker,
    decode_to_worker,
    encode,
)
from inferd.ipc.worker import Drop, Heartbeat, Load, Prepare, Refused, Run
from inferd.limits.protocol import MAX_JOB_MEDIA
from inferd.worker.channel import WorkerChannel
from tests.fakes.fds import contents, memfds
from tests.fakes.media import job_with

LOAD = Load(settings=MockSettings(name="m"), n_slots=1)
RECEIVED = decode_to_worker(encode(LOAD)[4:])


@pytest.fixture
def ends():
    """The daemon's socket, and the worker's link."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, WorkerChannel(theirs)


def test_messages_come_one_at_a_time_and_in_order(ends):
    ours, link = ends
    ours.sendall(encode(LOAD) + encode(Run(ticket=1)) + encode(Drop(ticket=1)))
    assert [link.receive() for _ in range(3)] == [
        (RECEIVED, ()),
        (Run(ticket=1), ()),
        (Drop(ticket=1), ()),
    ]


def test_a_message_in_pieces_is_waited_for(ends):
    ours, link = ends
    data = encode(LOAD)

    def dribble():
        for byte in data:
            ours.sendall(bytes([byte]))

    thread = Thread(target=dribble)
    thread.start()
    assert link.receive() == (RECEIVED, ())
    thread.join()


@pytest.mark.parametrize("half", [b"", encode(LOAD)[:-1]])
def test_a_daemon_that_is_gone_ends_receiving(ends, half):
    ours, link = ends
    ours.sendall(half)
    ours.close()
    assert link.receive() is None


def test_a_daemon_gone_with_unread_messages_ends_receiving(ends):
    ours, link = ends
    link.send(Heartbeat())
    ours.close()
    assert link.receive() is None


def test_malformed_messages_of_the_daemon_are_an_error(ends):
    ours, link = ends
    ours.sendall(b"\x01\x00\x00\x00\xc0")
    with pytest.raises(MalformedMessageError):
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


# --- descriptors ------------------------------------------------------------------------


def with_media(ticket, n_media):
    return Prepare(ticket=ticket, job=job_with(n_media))


def test_each_job_gets_its_own_descriptors_in_order(ends):
    ours, link = ends
    messages = [Run(ticket=1), with_media(2, 2), Run(ticket=3), with_media(4, 1)]
    for message, texts in zip(messages, [[], [b"a", b"b"], [], [b"c"]], strict=True):
        with memfds(*texts) as fds:
            socket.send_fds(ours, [encode(message)], fds)
    received = [link.receive() for _ in messages]
    assert [each.message for each in received] == messages
    fds = [fd for each in received for fd in each.fds]
    assert not any(map(os.get_inheritable, fds))
    assert [contents(each.fds) for each in received] == [[], [b"a", b"b"], [], [b"c"]]


def test_descriptors_wait_for_the_rest_of_their_message(ends):
    ours, link = ends
    data = encode(with_media(1, 1))
    with memfds(b"a") as fds:
        ours.sendall(encode(Run(ticket=1)))
        socket.send_fds(ours, [data[:1]], fds)
    thread = Thread(target=ours.sendall, args=(data[1:],))
    assert link.receive() == (Run(ticket=1), ())
    thread.start()
    assert contents(link.receive().fds) == [b"a"]
    thread.join()


@pytest.mark.parametrize(
    ("n_media", "n_fds"), [(0, 1), (1, 0), (1, 2), (3, 2), (1, MAX_JOB_MEDIA + 1)]
)
def test_a_message_with_fewer_or_more_descriptors_than_media_is_an_error(
    ends, n_media, n_fds
):
    ours, link = ends
    with memfds(*[b"x"] * n_fds) as fds:
        socket.send_fds(ours, [encode(with_media(1, n_media))], fds)
    with pytest.raises(MalformedMessageError):
        link.receive()
    contents(link._queue._fds)


def test_a_job_may_have_as_many_media_as_are_allowed(ends):
    ours, link = ends
    with memfds(*[b"x"] * MAX_JOB_MEDIA) as fds:
        socket.send_fds(ours, [encode(with_media(1, MAX_JOB_MEDIA))], fds)
    assert contents(link.receive().fds) == [b"x"] * MAX_JOB_MEDIA
