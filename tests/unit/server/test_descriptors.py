import resource
import socket
from pathlib import Path

import pytest
import trio
from hypothesis import given, strategies as st

from inferd.limits import MAX_ADMIN_CONNECTIONS, MAX_CONNECTIONS
from inferd.server.descriptors import Places, Spare, n_allowed, n_for_media, share_out
from inferd.server.limits import (
    BACKEND_DESCRIPTORS,
    DAEMON_DESCRIPTORS,
    MAX_MEDIA_FILES,
)
from inferd.server.listen import ADMIN_MODE, bind

DEFAULTS = Places(MAX_CONNECTIONS, MAX_ADMIN_CONNECTIONS, MAX_MEDIA_FILES)
OWN = DAEMON_DESCRIPTORS + BACKEND_DESCRIPTORS


def test_what_is_wanted_is_given_where_it_fits():
    needed = OWN + DEFAULTS.descriptors
    enough = next(n for n in range(needed, 2 * needed) if needed + n_for_media(n) == n)
    assert share_out(enough, DEFAULTS, n_backends=1) == DEFAULTS
    fewer = share_out(enough - 1, DEFAULTS, n_backends=1)
    assert fewer.media < MAX_MEDIA_FILES
    assert share_out(1024, DEFAULTS, n_backends=1).clients < MAX_CONNECTIONS


def test_of_64_there_are_some_for_either():
    assert share_out(64, DEFAULTS, n_backends=1) == Places(8, 3, 2)
    assert n_for_media(64) == 8


def test_each_backend_needs_some():
    one, two = (share_out(128, DEFAULTS, n_backends=n) for n in (1, 2))
    assert two.clients < one.clients


@pytest.mark.parametrize("n_descriptors", [0, OWN, OWN + 3])
def test_too_few_for_anybody_are_refused_with_how_many_it_takes(n_descriptors):
    n_least = OWN + 4 + n_for_media(n_descriptors)
    with pytest.raises(ValueError, match=f"= {n_descriptors}: at least {n_least} are"):
        share_out(n_descriptors, DEFAULTS, n_backends=1)


@given(
    n_descriptors=st.integers(OWN + 10, 5000),
    clients=st.integers(1, 3000),
    listeners=st.integers(1, 3000),
    media=st.integers(0, 3000),
)
def test_what_is_given_fits_and_is_no_more_than_wanted(
    n_descriptors, clients, listeners, media
):
    wanted = Places(clients, listeners, media)
    places = share_out(n_descriptors, wanted, n_backends=1)
    assert 1 <= places.clients <= clients
    assert 1 <= places.listeners <= listeners
    assert 0 <= places.media <= media
    own = OWN + n_for_media(n_descriptors)
    assert own + places.descriptors <= n_descriptors


def test_the_limit_is_the_soft_one(monkeypatch):
    assert n_allowed() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    monkeypatch.setattr(
        "resource.getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    assert n_allowed() > 1_000_000


@pytest.fixture
def spare():
    spare = Spare()
    spare.open()
    yield spare
    spare.close()


@pytest.fixture
async def listener(short_dir):
    async with bind(short_dir / "s", mode=ADMIN_MODE) as listener:
        yield listener


def n_open() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def test_one_who_waits_takes_the_place_of_the_spare_descriptor(
    spare, listener, short_dir
):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{short_dir}/s")
        before = n_open()
        with spare.accept(listener) as sock:
            assert n_open() == before
            client.send(b"hello")
            assert sock.recv(10) == b"hello"
        spare.restore()
        assert n_open() == before


async def test_where_nobody_waits_it_is_kept(spare, listener):
    before = n_open()
    assert spare.accept(listener) is None
    assert n_open() == before


async def test_there_is_none_before_it_is_opened_or_after_it_is_closed(
    listener, short_dir
):
    spare, before = Spare(), n_open()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{short_dir}/s")
        assert spare.accept(listener) is None
        spare.open()
        spare.close()
        spare.restore()
        assert spare.accept(listener) is None
    assert n_open() == before


async def test_where_there_is_none_to_be_had_it_does_without(monkeypatch):
    def refuse(*_):
        raise OSError

    spare, before = Spare(), n_open()
    with monkeypatch.context() as patch:
        patch.setattr("os.open", refuse)
        spare.open()
    assert n_open() == before
    spare.restore()
    assert n_open() == before + 1
    spare.close()
    await trio.lowlevel.checkpoint()
