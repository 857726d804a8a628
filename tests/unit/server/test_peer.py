import os
import socket

from inferd.server.peer import Peer, groups_of, peer_of
from tests.fakes.streams import open_pair


async def test_the_peer_is_the_process_that_connected():
    async with open_pair() as (ours, _):
        peer = peer_of(ours)
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
        peer_of(ours)
    assert asked == [(socket.SOL_SOCKET, socket.SO_PEERCRED)]


def test_a_peer_is_written_as_uid_and_pid():
    assert str(Peer(pid=17, uid=1000, gid=100)) == "unix:1000:17"
