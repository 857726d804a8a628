import resource
import socket
from pathlib import Path

import pytest
import trio
from hypothesis import given, strategies as st

from inferd.limits.connections import MAX_ADMIN_CONNECTIONS, MAX_CONNECTIONS
from inferd.limits.server import (
    BACKEND_DESCRIPTORS,
    DAEMON_DESCRIPTORS,
    MAX_MEDIA_FILES,
)
from inferd.server.listen.fd_budget import (
    FdAllocation,
    ReserveFd,
    allocate_fds,
    fd_limit,
    passed_fd_limit,
)
from inferd.service.bind import bind
from inferd.surfaces import ADMIN_MODE

DEFAULTS = FdAllocation(MAX_CONNECTIONS, MAX_ADMIN_CONNECTIONS, MAX_MEDIA_FILES)
OWN = DAEMON_DESCRIPTORS + BACKEND_DESCRIPTORS


def test_wanted_descriptors_are_allocated_where_they_fit():
    needed = OWN + DEFAULTS.descriptors
    enough = next(
        n for n in range(needed, 2 * needed) if needed + passed_fd_limit(n) == n
    )
    assert allocate_fds(enough, DEFAULTS, n_backends=1) == DEFAULTS
    fewer = allocate_fds(enough - 1, DEFAULTS, n_backends=1)
    assert fewer.media < MAX_MEDIA_FILES
    assert allocate_fds(1024, DEFAULTS, n_backends=1).clients < MAX_CONNECTIONS


def test_64_descriptors_are_enough_for_clients_and_operators():
    assert allocate_fds(64, DEFAULTS, n_backends=1) == FdAllocation(9, 2, 1)
    assert passed_fd_limit(64) == 8


def test_each_backend_needs_some():
    one, two = (allocate_fds(128, DEFAULTS, n_backends=n) for n in (1, 2))
    assert two.clients < one.clients


@pytest.mark.parametrize("n_descriptors", [0, OWN, OWN + 3])
def test_too_few_descriptors_are_refused_with_how_many_are_needed(n_descriptors):
    n_least = OWN + 4 + passed_fd_limit(n_descriptors)
    with pytest.raises(ValueError, match=f"= {n_descriptors}: at least {n_least} are"):
        allocate_fds(n_descriptors, DEFAULTS, n_backends=1)


@given(
    n_descriptors=st.integers(OWN + 10, 5000),
    clients=st.integers(1, 3000),
    listeners=st.integers(1, 3000),
    media=st.integers(0, 3000),
)
def test_an_allocation_fits_and_is_no_more_than_wanted(
    n_descriptors, clients, listeners, media
):
    wanted = FdAllocation(clients, listeners, media)
    allocation = allocate_fds(n_descriptors, wanted, n_backends=1)
    assert 1 <= allocation.clients <= clients
    assert 1 <= allocation.admin_clients <= listeners
    assert 0 <= allocation.media <= media
    own = OWN + passed_fd_limit(n_descriptors)
    assert own + allocation.descriptors <= n_descriptors


def test_the_limit_is_the_soft_one(monkeypatch):
    assert fd_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    monkeypatch.setattr(
        "resource.getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    assert fd_limit() > 1_000_000


@pytest.fixture
def reserve_fd():
    reserve_fd = ReserveFd()
    reserve_fd.open()
    yield reserve_fd
    reserve_fd.close()


@pytest.fixture
async def listener(short_dir):
    async with bind(short_dir / "s", mode=ADMIN_MODE) as listener:
        yield listener


def n_open() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def test_a_client_is_accepted_in_place_of_the_reserve_descriptor(
    reserve_fd, listener, short_dir
):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{short_dir}/s")
        before = n_open()
        with reserve_fd.accept(listener) as sock:
            assert n_open() == before
            client.send(b"hello")
            assert sock.recv(10) == b"hello"
        reserve_fd.restore()
        assert n_open() == before


async def test_with_an_empty_backlog_the_reserve_is_kept(reserve_fd, listener):
    before = n_open()
    assert reserve_fd.accept(listener) is None
    assert n_open() == before


async def test_there_is_no_reserve_before_it_is_opened_or_after_it_is_closed(
    listener, short_dir
):
    reserve_fd, before = ReserveFd(), n_open()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{short_dir}/s")
        assert reserve_fd.accept(listener) is None
        reserve_fd.open()
        reserve_fd.close()
        reserve_fd.restore()
        assert reserve_fd.accept(listener) is None
    assert n_open() == before


async def test_where_no_descriptor_is_available_the_reserve_is_opened_later(
    monkeypatch,
):
    def refuse(*_):
        raise OSError

    reserve_fd, before = ReserveFd(), n_open()
    with monkeypatch.context() as patch:
        patch.setattr("os.open", refuse)
        reserve_fd.open()
    assert n_open() == before
    reserve_fd.restore()
    assert n_open() == before + 1
    reserve_fd.close()
    await trio.lowlevel.checkpoint()
