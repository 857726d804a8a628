import os
import socket
import stat

import pytest
import trio
import trio.testing

from inferd.server.connection.limit import ConnectionLimit
from inferd.server.listen.acceptor import Acceptor, ListenerSpec, refusal_frame
from inferd.server.listen.listeners import Listeners, inherited_sockets
from inferd.server.telemetry.metrics import Metrics
from inferd.service.bind import ListenError
from inferd.surfaces import ADMIN_MODE, INFERENCE_MODE
from tests.fakes.serving import idle_scheduler
from tests.fakes.streams import BY_SOCKET

ACCEPTOR = Acceptor(Metrics(), idle_scheduler())


@pytest.fixture
def first_fd(monkeypatch) -> int:
    """Number inherited descriptors above all that are open, and that a test opens."""
    first = max(int(each) for each in os.listdir("/proc/self/fd")) + 100  # noqa: PTH208
    monkeypatch.setattr("inferd.service.activation.FIRST_FD", first)
    return first


@pytest.fixture
def hand_over(first_fd):
    """Duplicate descriptors to where systemd would pass them; return the environment."""

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


def greeting(leaf: str = "infer.sock", mode: int = INFERENCE_MODE) -> ListenerSpec:
    return ListenerSpec(
        BY_SOCKET[leaf],
        greet,
        ConnectionLimit(9),
        refusal_frame,
        may_use_reserve_fd=False,
        mode=mode,
    )


async def read(path) -> bytes:
    async with await trio.open_unix_socket(path) as client:
        return bytes(await client.receive_some(10))


# --- adoption ---------------------------------------------------------------------------


def test_a_listening_socket_is_adopted_under_its_leaf(short_dir, hand_over, first_fd):
    with (
        listening(short_dir) as ours,
        inherited_sockets(hand_over(infer=ours.fileno())) as got,
    ):
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
        with inherited_sockets(environ):
            assert environ == {"HOME": "/"}
            assert not os.get_inheritable(first_fd)


def test_without_passed_sockets_none_are_adopted():
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "infer"}
    with inherited_sockets(environ) as got:
        assert (got, environ) == ({}, {})


def test_the_variables_are_removed_even_if_they_are_invalid():
    environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "x"}
    with pytest.raises(ListenError, match="LISTEN_FDS"), inherited_sockets(environ):
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
            with inherited_sockets(environ):
                pytest.fail("adopted")


def test_a_descriptor_that_is_not_a_socket_is_refused(short_dir, hand_over, first_fd):
    with (short_dir / "file").open("w") as file:
        environ = hand_over(infer=file.fileno())
        with pytest.raises(ListenError, match=f"descriptor {first_fd} is not a socket"):
            with inherited_sockets(environ):
                pytest.fail("adopted")
    os.close(first_fd)


def test_a_descriptor_that_is_not_open_is_refused(hand_over, first_fd):
    environ = hand_over() | {"LISTEN_FDS": "1", "LISTEN_FDNAMES": "infer"}
    with pytest.raises(
        ListenError, match=f"descriptor {first_fd}: Bad file descriptor"
    ):
        with inherited_sockets(environ):
            pytest.fail("adopted")


# --- listeners --------------------------------------------------------------------------


async def test_a_bound_socket_exists_while_its_listener_is_open(short_dir, nursery):
    listeners = Listeners(short_dir, None)
    with listeners.open(nursery, greeting(), ACCEPTOR):
        assert await read(short_dir / "infer.sock") == b"hello"
        mode = (short_dir / "infer.sock").stat().st_mode
        assert stat.S_IMODE(mode) == 0o660
    assert list(short_dir.iterdir()) == []


async def test_a_socket_may_be_for_its_owner_alone(short_dir, nursery):
    with Listeners(short_dir, None).open(
        nursery, greeting("admin.sock", ADMIN_MODE), ACCEPTOR
    ):
        mode = (short_dir / "admin.sock").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600


async def test_an_inherited_socket_is_used_as_it_is_and_stays(short_dir, nursery):
    path = short_dir / "elsewhere"
    with listening(short_dir, "elsewhere") as theirs, theirs.dup() as ours:
        path.chmod(0o604)
        ours.setblocking(False)
        listeners = Listeners(short_dir / "run", "no-such-group", {"infer.sock": ours})
        assert listeners.inherited == ["infer.sock"]
        with listeners.open(nursery, greeting(), ACCEPTOR):
            assert await read(path) == b"hello"
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert path.exists()


async def test_clients_in_the_backlog_of_a_bound_socket_are_served_as_it_closes(
    short_dir, nursery
):
    clients = [socket.socket(socket.AF_UNIX) for _ in range(5)]
    with Listeners(short_dir, None).open(nursery, greeting(), ACCEPTOR):
        await trio.testing.wait_all_tasks_blocked()
        for client in clients:
            client.connect(f"{short_dir}/infer.sock")
    await trio.testing.wait_all_tasks_blocked()
    for client in clients:
        with client:
            assert client.recv(10) == b"hello"


async def test_a_client_that_comes_too_late_cannot_connect(short_dir, nursery):
    path, other = short_dir / "infer.sock", short_dir / "found-before"
    with Listeners(short_dir, None).open(nursery, greeting(), ACCEPTOR):
        await trio.testing.wait_all_tasks_blocked()
        other.hardlink_to(path)
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(str(other))  # before the listener's task has closed it
    await trio.testing.wait_all_tasks_blocked()


async def test_a_listener_can_be_closed_after_its_task_was_cancelled(short_dir):
    async with trio.open_nursery() as nursery:
        with Listeners(short_dir, None).open(nursery, greeting(), ACCEPTOR):
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
    assert list(short_dir.iterdir()) == []


async def test_clients_of_an_inherited_socket_wait_for_the_next_daemon(
    short_dir, nursery
):
    with listening(short_dir) as theirs, theirs.dup() as first, theirs.dup() as second:
        listeners = Listeners(short_dir, None, {"infer.sock": first})
        with listeners.open(nursery, greeting(), ACCEPTOR):
            await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        async with await trio.open_unix_socket(short_dir / "s") as client:
            await trio.testing.wait_all_tasks_blocked()
            second.setblocking(False)
            listeners = Listeners(short_dir, None, {"infer.sock": second})
            with listeners.open(nursery, greeting(), ACCEPTOR), trio.fail_after(90):
                assert await client.receive_some(10) == b"hello"


def test_only_one_daemon_uses_a_directory_at_a_time(short_dir):
    first, second = Listeners(short_dir, None), Listeners(short_dir, None)
    with first.locked():
        with pytest.raises(ListenError, match="already holds"), second.locked():
            pytest.fail("two are in it")
    assert [path.name for path in short_dir.iterdir()] == ["inferd.lock"]
