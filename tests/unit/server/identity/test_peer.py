import os
import socket
from pathlib import Path

import pytest

from inferd.backend.job import NO_UID
from inferd.server.identity.mapping import Identities, Identity, IdRange, IdRanges
from inferd.server.identity.peer import Peer, groups_of, overflow_uid, peer_of
from tests.fakes.streams import open_pair

PLAIN = Identities()


async def test_the_peer_is_the_process_that_connected():
    async with open_pair() as (ours, _):
        peer = peer_of(ours, PLAIN)
    assert peer == Peer(pid=os.getpid(), uid=os.getuid(), gid=os.getgid())


async def test_its_groups_are_those_it_had_when_it_connected():
    async with open_pair() as (ours, _):
        assert groups_of(ours) == frozenset(os.getgroups())


async def test_where_the_kernel_does_not_tell_them_there_are_no_groups(monkeypatch):
    def refuse(self, level, name, size):
        raise OSError

    async with open_pair() as (ours, _):
        monkeypatch.setattr(socket.socket, "getsockopt", refuse)
        assert groups_of(ours) == frozenset()


async def test_the_kernel_is_asked_for_credentials_and_nothing_else(monkeypatch):
    asked: list[tuple[int, int]] = []
    ask = socket.socket.getsockopt

    def spy(self, level, name, size):
        asked.append((level, name))
        return ask(self, level, name, size)

    async with open_pair() as (ours, _):
        monkeypatch.setattr(socket.socket, "getsockopt", spy)
        peer_of(ours, PLAIN)
    assert asked == [(socket.SOL_SOCKET, socket.SO_PEERCRED)]


def test_a_peer_is_written_as_uid_and_pid():
    assert str(Peer(pid=17, uid=1000, gid=100)) == "unix:1000:17"


# --- overflow uid -----------------------------------------------------------------------

EVERYBODY = "         0          0 4294967295\n"
A_FEW = "0 1000 1\n1 100000 65536\n"


@pytest.fixture
def namespace(monkeypatch, tmp_path):
    """Pretend to be in one of a map, with a uid for those who are not in it."""

    def enter(uid_map: str | None, kernels_uid: str | None = "65534\n"):
        for module, name, text in (
            ("server.identity.peer", "_UID_MAP", uid_map),
            ("peer_credentials", "_OVERFLOW_UID", kernels_uid),
        ):
            path: Path = tmp_path / name
            monkeypatch.setattr(f"inferd.{module}.{name}", path)
            if text is not None:
                path.write_text(text)
        overflow_uid.cache_clear()

    yield enter
    overflow_uid.cache_clear()


@pytest.mark.parametrize(
    ("uid_map", "kernels_uid", "shared"),
    [
        (EVERYBODY, "65534\n", None),
        ("0 0 1\n1 1 4294967294\n", "65534\n", None),
        (A_FEW, "65534\n", 65534),
        (A_FEW, "777\n", 777),
        ("", "65534\n", 65534),
        (A_FEW, None, 65534),
        (None, None, 65534),
    ],
)
def test_users_that_are_not_mapped_share_the_overflow_uid(
    namespace, uid_map, kernels_uid, shared
):
    namespace(uid_map, kernels_uid)
    assert overflow_uid() == shared


async def test_each_connection_with_the_overflow_uid_is_an_owner_of_its_own(namespace):
    namespace(A_FEW, f"{os.getuid()}\n")
    async with open_pair() as (ours, theirs):
        peers = [peer_of(ours, PLAIN), peer_of(theirs, PLAIN)]
    assert {each.uid for each in peers} == {os.getuid()}
    owners = {each.owner for each in peers}
    assert len(owners) == 2
    assert max(owners) < NO_UID


async def test_of_any_other_uid_all_connections_are_one_users(namespace):
    namespace(A_FEW, f"{os.getuid() + 1}\n")
    async with open_pair() as (ours, theirs):
        assert peer_of(ours, PLAIN) == peer_of(theirs, PLAIN)
        assert peer_of(ours, PLAIN).owner == os.getuid()


# --- subordinate ids --------------------------------------------------------------------


def ours_are(person: int | None) -> Identities:
    """Have our own uid be in a range of somebody's."""
    ours = IdRanges([IdRange(os.getuid(), 1, person)])
    return Identities(uids=ours, accounts=frozenset())


async def test_a_subordinate_uid_counts_as_its_owner_and_is_known_by_its_own():
    async with open_pair() as (stream, _):
        peer = peer_of(stream, ours_are(70_001))
    assert (peer.user, peer.owner) == (70_001, 70_001)
    assert (peer.uid, str(peer)) == (os.getuid(), f"unix:{os.getuid()}:{os.getpid()}")


async def test_uids_of_nobody_known_are_counted_together_and_kept_apart():
    async with open_pair() as (stream, _):
        peer = peer_of(stream, ours_are(None))
    assert peer.user >= 2**32
    assert peer.owner < NO_UID
    assert peer.owner != peer.user


async def test_the_overflow_uid_in_a_range_is_still_the_overflow_uid(namespace):
    namespace(A_FEW, f"{os.getuid()}\n")
    async with open_pair() as (stream, _):
        peer = peer_of(stream, ours_are(70_001))
    assert peer.user == os.getuid()
    assert peer.owner < NO_UID


def test_a_peer_that_counts_as_its_own_uid_has_no_identity():
    assert Peer(1, 70_001, 1).identity is None
    known = Peer(1, 100_001, 1, identity=Identity(70_001, 70_001))
    assert (known.user, known.owner) == (70_001, 70_001)
