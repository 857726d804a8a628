import json
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.harness import mock

ESCAPES = Path(__file__).parents[1] / "fakes/escapes.py"
SANDBOX = (sys.executable, "-m", "inferd.worker.sandbox")
LATER = "start a thread by a newer call"
N_ATTEMPTS = 132

WORK_OUTSIDE = {
    "make a file setuid",
    "make the open file setuid",
    "open a folder to all",
    "set the times of a file",
    "set the times of the open file",
    "send by a pair of sockets",
    "make a file in memory",
    "make a pipe",
    "watch a folder",
    "see a folder's times",
    "see a file's size",
    "ask for rights",
    "list a folder",
    "open a file",
    "open its place",
    "make a folder",
    "fork",
    "signal the parent",
    "hold the parent",
    "limit the parent",
    "see its time",
    "see whether it is there",
    "map code",
    "make code of data",
}
"""Attempts that show by what comes of them without a sandbox that they are real ones."""


@pytest.fixture
def place(tmp_path):
    """A folder as the user of a daemon has them."""
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "private/secret").write_text("secret")
    (tmp_path / "own").write_text("own")
    (tmp_path / "own").chmod(0o600)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(str(tmp_path / "datagrams"))
        datagrams.setblocking(False)
        yield tmp_path, datagrams


@contextmanager
def victim():
    """Start a process that others act on."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def escapes(command, place, *names, stdin):
    with victim() as pid:
        done = subprocess.run(
            [*command, ESCAPES, place, str(pid), *names],
            stdin=stdin,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def state(path):
    found = path.stat()
    return (
        stat.S_IMODE(found.st_mode),
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


@pytest.mark.slow
def test_nothing_that_was_found_to_lead_out_does_so_with_an_open_file(place):
    folder, datagrams = place
    paths = [folder, folder / "own", folder / "private", folder / "private/secret"]
    before = [state(path) for path in paths]
    with (folder / "own").open("r+b") as own:
        found = escapes(SANDBOX, folder, stdin=own)
    assert len(found) == N_ATTEMPTS
    assert found.pop(LATER) == "ENOSYS"
    assert {name: error for name, error in found.items() if error != "EPERM"} == {}
    assert [state(path) for path in paths] == before
    with pytest.raises(BlockingIOError):
        datagrams.recv(1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_nor_does_it_with_a_socket_of_any_kind(kind, place):
    folder, datagrams = place
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    with ours, theirs:
        found = escapes(SANDBOX, folder, stdin=theirs.fileno())
    assert found.pop(LATER) == "ENOSYS"
    assert {name: error for name, error in found.items() if error != "EPERM"} == {}
    with pytest.raises(BlockingIOError):
        datagrams.recv(1)


@pytest.mark.slow
def test_the_attempts_are_real_ones(place):
    folder, datagrams = place
    with (folder / "own").open("r+b") as own:
        found = escapes((sys.executable,), folder, *WORK_OUTSIDE, stdin=own)
    assert found == dict.fromkeys(WORK_OUTSIDE, "")
    assert datagrams.recv(99) == b"secret"
    assert stat.S_IMODE((folder / "own").stat().st_mode) == 0o6755
    assert "tell a file from none" not in WORK_OUTSIDE


@pytest.mark.slow
def test_a_worker_of_a_daemon_is_held_like_that_on_all_its_threads(make_daemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    daemon.ask()
    [worker] = daemon.worker_pids()
    tasks = [*Path(f"/proc/{worker}/task").iterdir()]
    assert len(tasks) >= 3  # it decodes, prepares and reads
    assert {n_filters(task) for task in tasks} == {n_filters(Path("/proc/self")) + 2}


def n_filters(process: Path) -> int:
    lines = (process / "status").read_text().splitlines()
    [count] = [line.split()[1] for line in lines if line.startswith("Seccomp_filters")]
    return int(count)


SECOND_HALF = """
import socket
ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, 0)
data, ancillary, _, _ = ours.recvmsg(8, socket.CMSG_SPACE(4))
print(data.decode(), len(ancillary))
"""


@pytest.mark.slow
def test_the_one_socket_that_a_worker_has_still_brings_descriptors(tmp_path):
    script = tmp_path / "receive.py"
    script.write_text(SECOND_HALF)
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "receive.py").open() as medium:
        socket.send_fds(ours, [b"medium"], [medium.fileno()])
        done = subprocess.run(
            [*SANDBOX, script],
            stdin=theirs.fileno(),
            check=False,
            capture_output=True,
            text=True,
        )
    assert (done.stdout, done.stderr) == ("medium 1\n", "")
