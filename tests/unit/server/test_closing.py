import os
import signal
import socket
import threading

import pytest

from inferd.server.closing import (
    INTERRUPTED,
    Interrupted,
    close_apart,
    close_left,
    close_now,
)
from inferd.server.custody import Custody, Parcel
from tests.fakes.fds import closing, is_open, lingering, memfd, n_open

ANNA = 1001
LINGER_S = 20
"""Seconds that a test takes, and fails, where nothing cuts the wait short."""


@pytest.fixture
def cuts(monkeypatch):
    """What has been cut short, one for each signal."""
    seen = []
    monkeypatch.setattr("inferd.server.closing._nothing", lambda *_: seen.append(1))
    return seen


def test_a_socket_that_waits_is_closed_within_a_bound(cuts):
    interrupted = Interrupted()
    with lingering(linger_s=LINGER_S) as (fd, _), interrupted.on():
        with interrupted:
            os.close(fd)
        assert not is_open(fd)
    assert cuts


def test_what_only_came_with_bytes_is_dropped_within_a_bound(cuts):
    ours, theirs = socket.socketpair()
    interrupted = Interrupted()
    with ours, theirs, lingering(linger_s=LINGER_S) as (fd, _), interrupted.on():
        socket.send_fds(theirs, [b"x"], [fd])
        os.close(fd)
        with interrupted:
            assert os.read(ours.fileno(), 10) == b"x"
    assert cuts


def test_so_is_what_nobody_has_read(cuts):
    ours, theirs = socket.socketpair()
    interrupted = Interrupted()
    with theirs, lingering(linger_s=LINGER_S) as (fd, _), interrupted.on():
        socket.send_fds(theirs, [b"x"], [fd])
        os.close(fd)
        with interrupted:
            ours.close()
    assert cuts


def test_where_it_is_not_on_nothing_is_interrupted():
    before = signal.getsignal(signal.SIGALRM)
    with Interrupted():
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_it_is_on_once_and_leaves_what_was_there():
    before = signal.getsignal(signal.SIGALRM)
    interrupted = Interrupted()
    with interrupted.on():
        with interrupted.on():
            pass
        with interrupted:
            assert signal.getitimer(signal.ITIMER_REAL) > (0, 0)
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_on_another_thread_it_is_not_on():
    seen = []

    def look():
        interrupted = Interrupted()
        with interrupted.on(), interrupted:
            seen.append(signal.getitimer(signal.ITIMER_REAL))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [(0, 0)]


def test_files_in_memory_are_closed_at_once_and_the_others_are_told():
    reader, writer = os.pipe()
    with closing(reader, writer):
        fd = memfd(b"x")
        assert close_now((reader, fd, writer)) == [reader, writer]
        assert not is_open(fd)


def test_a_thread_closes_others_whatever_the_kernel_says_of_one():
    reader, writer = os.pipe()
    n_before = n_open()
    thread = close_apart((reader, -1, writer))
    assert thread is not None
    thread.join()
    assert n_open() == n_before - 2


def test_what_one_who_has_left_had_sent_is_closed_within_a_bound(cuts):
    ours, theirs = socket.socketpair()
    with lingering(linger_s=LINGER_S) as (fd, _), INTERRUPTED.on():
        socket.send_fds(theirs, [b"x"], [fd])
        os.close(fd)
        theirs.close()
        close_left(ours)
        assert ours.fileno() == -1
    assert cuts


def test_without_a_thread_they_are_closed_here(cuts, monkeypatch):
    def none_left(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    with lingering(linger_s=LINGER_S) as (fd, _), INTERRUPTED.on():
        assert close_apart([fd]) is None
        assert not is_open(fd)
    assert cuts


def test_what_is_not_closed_yet_counts_and_is_no_other_users_affair():
    custody = Custody(4)
    with lingering() as (fd, reader):
        parcel = Parcel(custody, ANNA)
        parcel.add((fd,), is_cut=False)
        parcel.close()
        assert custody.n_held == 1
        assert (custody.room(ANNA), custody.room(ANNA + 1)) == (1, 1)
        [late] = custody._late
        reader.close()
        late.thread.join()
        assert custody.n_held == 0
