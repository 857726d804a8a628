import os
import signal
import socket
import threading

import pytest

from inferd.server.fd_passing.close import (
    SYSCALL_TIMER,
    SyscallTimer,
    close_disconnected,
    close_in_thread,
    close_memfds,
)
from inferd.server.fd_passing.quota import FdQuota, LineFds
from tests.fakes.fds import closing, is_open, lingering, memfd, n_open

ANNA = 1001
LINGER_S = 20
"""Seconds that a test takes, and fails, where nothing cuts the wait short."""


@pytest.fixture
def cuts(monkeypatch):
    """The interrupted system calls, one entry for each signal."""
    seen = []
    monkeypatch.setattr(
        "inferd.server.fd_passing.close._ignore_signal", lambda *_: seen.append(1)
    )
    return seen


def test_a_socket_that_waits_is_closed_within_a_bound(cuts):
    interrupted = SyscallTimer()
    with lingering(linger_s=LINGER_S) as (fd, _), interrupted.enabled():
        with interrupted:
            os.close(fd)
        assert not is_open(fd)
    assert cuts


def test_descriptors_without_ancillary_space_are_discarded_within_a_bound(cuts):
    ours, theirs = socket.socketpair()
    interrupted = SyscallTimer()
    with ours, theirs, lingering(linger_s=LINGER_S) as (fd, _), interrupted.enabled():
        socket.send_fds(theirs, [b"x"], [fd])
        os.close(fd)
        with interrupted:
            assert os.read(ours.fileno(), 10) == b"x"
    assert cuts


def test_unread_descriptors_are_closed_within_a_bound(cuts):
    ours, theirs = socket.socketpair()
    interrupted = SyscallTimer()
    with theirs, lingering(linger_s=LINGER_S) as (fd, _), interrupted.enabled():
        socket.send_fds(theirs, [b"x"], [fd])
        os.close(fd)
        with interrupted:
            ours.close()
    assert cuts


def test_a_timer_that_is_not_enabled_interrupts_nothing():
    before = signal.getsignal(signal.SIGALRM)
    with SyscallTimer():
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_the_timer_is_enabled_once_and_restores_the_handler():
    before = signal.getsignal(signal.SIGALRM)
    interrupted = SyscallTimer()
    with interrupted.enabled():
        with interrupted.enabled():
            pass
        with interrupted:
            assert signal.getitimer(signal.ITIMER_REAL) > (0, 0)
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_the_timer_is_not_enabled_on_another_thread():
    seen = []

    def look():
        interrupted = SyscallTimer()
        with interrupted.enabled(), interrupted:
            seen.append(signal.getitimer(signal.ITIMER_REAL))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [(0, 0)]


def test_memfds_are_closed_at_once_and_others_are_returned():
    reader, writer = os.pipe()
    with closing(reader, writer):
        fd = memfd(b"x")
        assert close_memfds((reader, fd, writer)) == [reader, writer]
        assert not is_open(fd)


def test_a_thread_closes_others_whatever_the_kernel_says_of_one():
    reader, writer = os.pipe()
    n_before = n_open()
    thread = close_in_thread((reader, -1, writer))
    assert thread is not None
    thread.join()
    assert n_open() == n_before - 2


def test_descriptors_from_a_disconnected_client_are_closed_within_a_bound(cuts):
    ours, theirs = socket.socketpair()
    with lingering(linger_s=LINGER_S) as (fd, _), SYSCALL_TIMER.enabled():
        socket.send_fds(theirs, [b"x"], [fd])
        os.close(fd)
        theirs.close()
        close_disconnected(ours)
        assert ours.fileno() == -1
    assert cuts


def test_without_a_thread_they_are_closed_here(cuts, monkeypatch):
    def none_left(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    with lingering(linger_s=LINGER_S) as (fd, _), SYSCALL_TIMER.enabled():
        assert close_in_thread([fd]) is None
        assert not is_open(fd)
    assert cuts


def test_descriptors_being_closed_count_for_their_user_alone():
    fd_quota = FdQuota(4)
    with lingering() as (fd, reader):
        line_fds = LineFds(fd_quota, ANNA)
        line_fds.add((fd,), is_cut=False)
        line_fds.close()
        assert fd_quota.n_held == 1
        assert (fd_quota.n_available(ANNA), fd_quota.n_available(ANNA + 1)) == (1, 1)
        [late] = fd_quota._closing
        reader.close()
        late.thread.join()
        assert fd_quota.n_held == 0
