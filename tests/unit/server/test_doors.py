import os
import socket
import stat

import pytest
import trio
import trio.testing

from inferd.server.doors import Doors, adopted
from inferd.server.listen import ADMIN_MODE, INFERENCE_MODE, ListenError
from inferd.server.metrics import Metrics
from inferd.server.reception import Door, Reception, in_a_frame
from inferd.server.room import Room

RECEPTION = Reception(Metrics())


@pytest.fixture
def first_fd(monkeypatch) -> int:
    """Count inherited descriptors from where a test can have some."""
    monkeypatch.setattr("inferd.server.activation.FIRST_FD", 900)
    return 900


@pytest.fixture
def hand_over(first_fd):
    """Put descriptors where they would be inherited; give the environment."""

    def hand(**fds: int) -> dict[str, str]:
        for target, fd in enumerate(fds.values(), first_fd):
            os.dup2(fd, target, inheritable=True)
        return {
            "LISTEN_PID": str(os.getpid()),
            "LISTEN_FDS": str(len(fds)),
            "LISTEN_FDNAMES": ":".join(fds),
            "HOME": "/",
        }

    return hand


def listening(directory, leaf: str = "s") -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(f"{directory}/{leaf}")
    sock.listen()
    return sock


async def greet(stream: trio.SocketStream) -> None:
    await stream.send_all(b"hello")


def greeting(leaf: str = "infer.sock", mode: int = INFERENCE_MODE) -> Door:
    return Door(leaf, greet, Room(9), in_a_frame, is_kept_open=False, mode=mode)


async def read(path) -> bytes:
    async with await trio.open_unix_socket(path) as client:
        return bytes(await client.receive_some(10))


# --- adoption ---------------------------------------------------------------------------


def test_a_listening_socket_is_adopted_under_its_leaf(short_dir, hand_over, first_fd):
    with listening(short_dir) as ours, adopted(hand_over(infer=ours.fileno())) as got:
        assert {leaf: sock.fileno() for leaf, sock in got.items()} == {
            "infer.sock": first_fd
        }
        assert got["infer.sock"].getsockname() == f"{short_dir}/s"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first_fd)


def test_a_worker_inherits_neither_sockets_nor_variables(
    short_dir, hand_over, first_fd
):
    with listening(short_dir) as ours:
        environ = hand_over(infer=ours.fileno())
        assert os.get_inheritable(first_fd)
        with adopted(environ):
            assert environ == {"HOME": "/"}
            assert not os.get_inheritable(first_fd)


def test_where_nothing_is_handed_over_nothing_is_adopted():
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "infer"}
    with adopted(environ) as got:
        assert (got, environ) == ({}, {})


def test_the_variables_are_removed_even_if_they_make_no_sense():
    environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "x"}
    with pytest.raises(ListenError, match="LISTEN_FDS"), adopted(environ):
        pytest.fail("adopted")
    assert environ == {}


@pytest.mark.parametrize(
    ("family", "kind", "listens"),
    [
        (socket.AF_UNIX, socket.SOCK_STREAM, False),
        (socket.AF_UNIX, socket.SOCK_DGRAM, False),
        (socket.AF_UNIX, socket.SOCK_SEQPACKET, True),
        (socket.AF_INET, socket.SOCK_STREAM, True),
    ],
)
def test_another_kind_of_socket_is_refused(family, kind, listens, hand_over, short_dir):
    with socket.socket(family, kind) as ours:
        if listens:
            ours.bind(f"{short_dir}/s" if family == socket.AF_UNIX else ("", 0))
            ours.listen()
        environ = hand_over(admin=ours.fileno())
        with pytest.raises(ListenError, match="admin.sock: not a listening Unix"):
            with adopted(environ):
                pytest.fail("adopted")


def test_a_descriptor_that_is_no_socket_is_refused(short_dir, hand_over, first_fd):
    with (short_dir / "file").open("w") as file:
        environ = hand_over(infer=file.fileno())
        with pytest.raises(ListenError, match="descriptor 900 is not a socket"):
            with adopted(environ):
                pytest.fail("adopted")
    os.close(first_fd)


def test_a_descriptor_that_is_not_there_is_refused(hand_over):
    environ = hand_over() | {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "infer"}
    with pytest.raises(ListenError, match="descriptor 900: Bad file descriptor"):
        with adopted(environ):
            pytest.fail("adopted")


# --- doors ------------------------------------------------------------------------------


async def test_a_socket_of_our_own_is_there_while_the_door_is_open(short_dir, nursery):
    doors = Doors(short_dir, None)
    with doors.open(nursery, greeting(), RECEPTION):
        assert await read(short_dir / "infer.sock") == b"hello"
        mode = (short_dir / "infer.sock").stat().st_mode
        assert stat.S_IMODE(mode) == 0o660
    assert list(short_dir.iterdir()) == []


async def test_a_door_may_be_for_its_owner_alone(short_dir, nursery):
    with Doors(short_dir, None).open(
        nursery, greeting("admin.sock", ADMIN_MODE), RECEPTION
    ):
        mode = (short_dir / "admin.sock").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600


async def test_an_inherited_socket_is_used_as_it_is_and_stays(short_dir, nursery):
    path = short_dir / "elsewhere"
    with listening(short_dir, "elsewhere") as theirs, theirs.dup() as ours:
        path.chmod(0o604)
        ours.setblocking(False)
        doors = Doors(short_dir / "run", "no-such-group", {"infer.sock": ours})
        assert doors.inherited == ["infer.sock"]
        with doors.open(nursery, greeting(), RECEPTION):
            assert await read(path) == b"hello"
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert path.exists()


async def test_those_who_wait_as_a_door_of_our_own_is_closed_are_let_in(
    short_dir, nursery
):
    clients = [socket.socket(socket.AF_UNIX) for _ in range(5)]
    with Doors(short_dir, None).open(nursery, greeting(), RECEPTION):
        await trio.testing.wait_all_tasks_blocked()
        for client in clients:
            client.connect(f"{short_dir}/infer.sock")
    await trio.testing.wait_all_tasks_blocked()
    for client in clients:
        with client:
            assert client.recv(10) == b"hello"


async def test_who_comes_too_late_to_be_let_in_cannot_connect(short_dir, nursery):
    path, other = short_dir / "infer.sock", short_dir / "found-before"
    with Doors(short_dir, None).open(nursery, greeting(), RECEPTION):
        await trio.testing.wait_all_tasks_blocked()
        other.hardlink_to(path)
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(str(other))  # before the listener's task has closed it
    await trio.testing.wait_all_tasks_blocked()


async def test_a_door_may_be_closed_whose_listener_was_cancelled(short_dir):
    async with trio.open_nursery() as nursery:
        with Doors(short_dir, None).open(nursery, greeting(), RECEPTION):
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
    assert list(short_dir.iterdir()) == []


async def test_those_who_come_when_the_door_is_closed_wait_for_the_next(
    short_dir, nursery
):
    with listening(short_dir) as theirs, theirs.dup() as first, theirs.dup() as second:
        doors = Doors(short_dir, None, {"infer.sock": first})
        with doors.open(nursery, greeting(), RECEPTION):
            await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        async with await trio.open_unix_socket(short_dir / "s") as client:
            await trio.testing.wait_all_tasks_blocked()
            second.setblocking(False)
            doors = Doors(short_dir, None, {"infer.sock": second})
            with doors.open(nursery, greeting(), RECEPTION), trio.fail_after(5):
                assert await client.receive_some(10) == b"hello"


def test_only_one_is_in_a_directory_at_a_time(short_dir):
    first, second = Doors(short_dir, None), Doors(short_dir, None)
    with first.locked():
        with pytest.raises(ListenError, match="already holds"), second.locked():
            pytest.fail("two are in it")
    assert [path.name for path in short_dir.iterdir()] == ["inferd.lock"]
