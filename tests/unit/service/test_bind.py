import fcntl
import grp
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from inferd.limits.connections import SOCKET_PATH_BYTES
from inferd.service.bind import (
    ListenError,
    bind,
    check_socket_directory,
    group_id_of,
    locked,
    make_socket_directory,
)
from tests.fakes.listener import full_backlog

OUR_GROUP = grp.getgrgid(os.getegid()).gr_name
STRANGER_UID = 12345


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def close(listener: trio.SocketListener) -> None:
    """Close a listener outside any event loop."""
    os.close(listener.socket.detach())


@contextmanager
def bound(path: Path, *, mode: int = 0o600, group: str | None = None) -> Iterator[None]:
    listener = bind(path, mode=mode, group=group)
    try:
        yield
    finally:
        close(listener)


# --- the directory ----------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_new_directory_is_the_daemons_alone(short_dir, mask):
    with umask(mask):
        make_socket_directory(short_dir / "above" / "run", group=None)
    assert mode_of(short_dir / "above" / "run") == 0o700


def test_a_group_may_enter_a_new_directory(short_dir):
    make_socket_directory(short_dir / "run", group=OUR_GROUP)
    assert mode_of(short_dir / "run") == 0o750
    assert (short_dir / "run").stat().st_gid == os.getegid()


@pytest.mark.parametrize("name", ["no-such-group", "", "nul\0"])
def test_an_unknown_group_is_refused_before_anything_is_made(short_dir, name):
    with pytest.raises(ListenError) as caught:
        make_socket_directory(short_dir / "run", group=name)
    assert str(caught.value) == f"group not found: {name!r}"
    assert list(short_dir.iterdir()) == []


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_an_existing_directory_is_left_as_it_is(short_dir, mode):
    path = short_dir / "run"
    path.mkdir()
    path.chmod(mode)
    make_socket_directory(path, group=None)
    assert mode_of(path) == mode


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777])
def test_a_directory_that_anybody_may_write_to_is_refused(short_dir, mode):
    path = short_dir / "run"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(ListenError, match="may be written by anybody"):
        make_socket_directory(path, group=None)


def test_a_directory_of_somebody_else_is_refused(short_dir, monkeypatch):
    info = list(short_dir.lstat())
    info[stat.ST_UID] = STRANGER_UID
    monkeypatch.setattr(Path, "lstat", lambda _: os.stat_result(info))
    with pytest.raises(ListenError, match=f"belongs to uid {STRANGER_UID}"):
        check_socket_directory(short_dir)


def test_a_symlink_or_a_file_is_no_directory(short_dir):
    (short_dir / "real").mkdir()
    (short_dir / "link").symlink_to(short_dir / "real")
    (short_dir / "file").touch()
    for leaf in ("link", "file"):
        with pytest.raises(ListenError, match="is not a directory"):
            make_socket_directory(short_dir / leaf, group=None)


def test_a_directory_that_cannot_be_made_is_an_error_of_one_line(short_dir):
    (short_dir / "file").touch()
    with pytest.raises(ListenError, match="socket directory .*: File exists"):
        make_socket_directory(short_dir / "file" / "run", group=None)


# --- the lock ---------------------------------------------------------------------------


def test_only_one_holds_the_lock_at_a_time(short_dir):
    path = short_dir / "lock"
    with locked(path):
        with pytest.raises(ListenError, match="already holds the lock"), locked(path):
            pytest.fail("two hold it")
    with locked(path):
        assert mode_of(path) == 0o600


def test_a_lock_file_outlives_the_lock(short_dir):
    with locked(short_dir / "lock"):
        inode = (short_dir / "lock").stat().st_ino
    assert (short_dir / "lock").stat().st_ino == inode


def test_a_lock_is_free_when_its_holder_failed(short_dir):
    with pytest.raises(ZeroDivisionError), locked(short_dir / "lock"):
        raise ZeroDivisionError
    with locked(short_dir / "lock"):
        pass


def test_a_worker_does_not_inherit_the_lock(short_dir):
    path = short_dir / "lock"
    with locked(path):
        links = [*Path("/proc/self/fd").iterdir()]
        held = [int(link.name) for link in links if link.resolve() == path.resolve()]
        assert [fcntl.fcntl(fd, fcntl.F_GETFD) for fd in held] == [fcntl.FD_CLOEXEC]


def test_a_symlink_is_refused_as_a_lock(short_dir):
    (short_dir / "victim").write_text("precious")
    (short_dir / "lock").symlink_to(short_dir / "victim")
    with pytest.raises(ListenError, match="symlink"), locked(short_dir / "lock"):
        pytest.fail("locked")
    assert (short_dir / "victim").read_text() == "precious"


def test_a_dangling_symlink_is_refused_as_a_lock(short_dir):
    (short_dir / "lock").symlink_to(short_dir / "made-by-us")
    with pytest.raises(ListenError, match="symlink"), locked(short_dir / "lock"):
        pytest.fail("locked")
    assert not (short_dir / "made-by-us").exists()


def test_a_directory_or_a_pipe_is_refused_as_a_lock(short_dir):
    (short_dir / "dir").mkdir()
    os.mkfifo(short_dir / "pipe")
    for leaf in ("dir", "pipe"):
        with pytest.raises(ListenError, match="not a regular file"):
            with locked(short_dir / leaf):
                pytest.fail("locked")


def test_a_lock_that_cannot_be_opened_is_an_error_of_one_line(short_dir):
    with pytest.raises(ListenError, match="No such file"):
        with locked(short_dir / "missing" / "lock"):
            pytest.fail("locked")


# --- the socket -------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o077])
@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_a_socket_gets_its_mode_whatever_the_umask(short_dir, mode, mask):
    with umask(mask), bound(short_dir / "s", mode=mode):
        assert mode_of(short_dir / "s") == mode


def test_nobody_can_connect_before_a_socket_has_its_mode(short_dir, monkeypatch):
    early: list[int] = []
    listen = socket.socket.listen

    def spy(self, backlog):
        early.append(mode_of(short_dir / "s"))
        listen(self, backlog)

    monkeypatch.setattr(socket.socket, "listen", spy)
    with umask(0), bound(short_dir / "s", mode=0o660):
        assert early == [0o660]
        assert os.umask(0) == 0


async def test_a_client_can_connect(short_dir):
    listener = bind(short_dir / "s", mode=0o600)
    async with listener, await trio.open_unix_socket(short_dir / "s") as client:
        async with await listener.accept() as stream:
            await stream.send_all(b"hello")
            assert bytes(await client.receive_some(10)) == b"hello"


def test_a_socket_may_belong_to_a_group(short_dir):
    with bound(short_dir / "s", mode=0o660, group=OUR_GROUP):
        assert (short_dir / "s").stat().st_gid == os.getegid()


def test_a_socket_left_by_a_daemon_before_us_is_replaced(short_dir):
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(f"{short_dir}/s")
    with bound(short_dir / "s"), socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{short_dir}/s")


@pytest.mark.parametrize("is_full", [True, False])
def test_a_socket_that_somebody_listens_at_is_not_replaced(short_dir, is_full):
    path = short_dir / "s"
    with full_backlog(path) if is_full else bound(path, mode=0o600):
        inode = path.stat().st_ino
        with pytest.raises(ListenError, match="something listens there"):
            bind(path, mode=0o600)
        assert path.stat().st_ino == inode


def test_a_socket_that_may_be_in_use_is_an_error_of_one_line(short_dir):
    path = short_dir / "infer.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as theirs:
        theirs.bind(str(path))
        with pytest.raises(ListenError, match=f"^socket path {path}: Protocol wrong"):
            bind(path, mode=0o600)
    assert path.exists()


def test_a_symlink_is_not_replaced_by_a_socket(short_dir):
    (short_dir / "s").symlink_to(short_dir / "elsewhere")
    with pytest.raises(ListenError, match="symlink"):
        bind(short_dir / "s", mode=0o600)
    assert (short_dir / "s").is_symlink()


def test_a_file_that_is_not_a_socket_is_not_removed(short_dir):
    (short_dir / "s").write_text("precious")
    with pytest.raises(ListenError, match="taken by something else"):
        bind(short_dir / "s", mode=0o600)
    assert (short_dir / "s").read_text() == "precious"


def test_a_path_may_be_as_long_as_the_kernel_allows(short_dir):
    n_left = SOCKET_PATH_BYTES - len(os.fsencode(short_dir)) - 1
    with bound(short_dir / ("s" * n_left)):
        pass
    with pytest.raises(ListenError, match="at most 107 fit"):
        bind(short_dir / ("s" * (n_left + 1)), mode=0o600)


def test_a_path_is_measured_in_bytes(short_dir):
    n_left = SOCKET_PATH_BYTES - len(os.fsencode(short_dir)) - 1
    with pytest.raises(ListenError, match="at most 107 fit"):
        bind(short_dir / ("é" * (n_left // 2 + 1)), mode=0o600)


def test_a_socket_that_cannot_be_bound_is_an_error_of_one_line(short_dir):
    with pytest.raises(ListenError, match="No such file or directory"):
        bind(short_dir / "missing" / "s", mode=0o600)


def test_a_group_is_found_by_its_name():
    assert group_id_of(OUR_GROUP) == os.getegid()


def test_a_socket_for_an_unknown_group_leaves_nothing_behind(short_dir):
    with pytest.raises(ListenError, match="group not found"):
        bind(short_dir / "s", mode=0o660, group="no-such-group")
    assert not (short_dir / "s").exists()
