import ctypes
import fcntl
import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from inferd.client.sync import ExchangeBounds
from inferd.config.kinds.kind import RequiredFile
from inferd.config.load import CONFIG_MAX_BYTES, load_config
from inferd.config.settings import ConfigError
from inferd.doctor import runtime, sandbox
from inferd.doctor.backend import check_files
from inferd.doctor.check import TEXT_CHARS, Verdict
from inferd.doctor.runtime import check_admin, check_sockets
from inferd.doctor.sandbox import EVENT, last_sandbox_event
from inferd.doctor.service import check_readable
from inferd.doctor.storage import LogPlace, check_log_directory
from inferd.models.facts.read import read_model
from inferd.models.file_error import ModelFileError
from inferd.service.lock import lock_holder
from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import ModelFile
from tests.daemon.configuration import clean_environ, mock, to_toml
from tests.daemon.users import needs_root
from tests.fakes.impostor import STRANGER_UID
from tests.fakes.listener import full_backlog

pytestmark = pytest.mark.slow

PATIENCE_S = 120.0
"""Seconds after which something counts as endless: what is tested ends at once, or never."""
FOREVER = 1e6
BOXED = json.dumps({"msg": EVENT, "landlock": 3, "missing": []}).encode() + b"\n"
HOSTILE = "\x1b[2J\u202e\nerror: FORGED" + "x" * 100_000
CAPABLE = b'{"status":"capabilities"}\n'


def ended(action):
    """Run what might never end; give what it returns or raises."""
    results = []

    def run():
        try:
            results.append(action())
        except BaseException as error:  # noqa: BLE001  # raised again by the test's thread
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert results, "it does not end"
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


# --- files ------------------------------------------------------------------------------


@pytest.fixture
def log(short_dir):
    (short_dir / "logs").mkdir()
    return short_dir / "logs" / "inferd.ndjson"


def test_a_fifo_is_not_waited_for(log):
    os.mkfifo(log)
    assert ended(lambda: last_sandbox_event(log)) is None
    with pytest.raises(ConfigError, match="not a regular file"):
        ended(lambda: load_config(log))
    finding = ended(lambda: check_files([RequiredFile("model", log, "0" * 64)]))
    assert finding.verdict is Verdict.FAILED
    assert "not a regular file" in finding.detail


class Opens:
    """Watch of a file: how often it has been opened.

    The kernel notes each as it happens. ``O_PATH`` opens nothing, so it is not noted.
    """

    _OPEN = 0x20
    _EVENT = struct.Struct("iIII")

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert libc.inotify_add_watch(self._fd, os.fsencode(path), self._OPEN) > 0

    def close(self) -> None:
        os.close(self._fd)

    def count(self) -> int:
        """Count those since the last call."""
        try:
            events = os.read(self._fd, 65536)
        except BlockingIOError:
            return 0
        return len(events) // self._EVENT.size


@pytest.fixture
def terminal():
    """A device that this test alone has."""
    ours, theirs = os.openpty()
    yield Path(os.ttyname(theirs))
    os.close(ours)
    os.close(theirs)


def read_all(path: Path) -> None:
    """Read a path as root's doctor does: as a configuration, a model and a log."""
    with suppress(ConfigError):
        load_config(path)
    check_files([RequiredFile("model", path, "0" * 64)])
    last_sandbox_event(path)
    with suppress(ModelFileError):
        read_model([path])
    with suppress(LoadError):
        ModelFile(path)


@pytest.mark.parametrize("leads_to", ["fifo", "device"])
def test_what_is_no_regular_file_is_never_opened(log, terminal, leads_to):
    place = terminal if leads_to == "device" else log.parent / "fifo"
    if leads_to == "fifo":
        os.mkfifo(place)
    link = log.parent / "link"
    link.symlink_to(place)
    log.write_bytes(BOXED)
    with closing(Opens(place)) as opens, closing(Opens(log)) as others:
        read_all(place)
        read_all(link)
        assert opens.count() == 0
        read_all(log)
        assert others.count() > 0  # the kernel does tell


def test_a_file_of_any_length_is_read_up_to_a_bound(log):
    log.write_bytes(BOXED)
    os.truncate(log, 2**40)
    assert ended(lambda: last_sandbox_event(log)) is None
    os.truncate(log, 2**40 - len(BOXED))
    with log.open("ab") as file:
        file.write(b"\n" + BOXED)
    assert ended(lambda: last_sandbox_event(log)) is not None
    with pytest.raises(ConfigError, match=f"over {CONFIG_MAX_BYTES} bytes"):
        ended(lambda: load_config(log))


def test_a_log_that_grows_all_the_time_has_an_end(log, monkeypatch):
    endless = os.open("/dev/zero", os.O_RDONLY)
    monkeypatch.setattr(sandbox, "open_unredirected_file", lambda _: endless)
    assert ended(lambda: last_sandbox_event(log)) is None


def test_a_model_that_grows_all_the_time_has_an_end(log):
    data = bytes(100_000)
    log.write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    with log.open("ab") as file, writing(lambda: file.write(data)):
        finding = ended(lambda: check_files([RequiredFile("model", log, sha256)]))
    assert finding.detail.startswith((f"{len(data)} bytes", f"{log} has SHA-256"))


@contextmanager
def writing(write):
    """Write again and again while inside."""
    stopped = threading.Event()

    def run():
        for _ in range(200_000):  # bounded for the disk, far over what is looked at
            if stopped.is_set():
                return
            write()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@needs_root
def test_a_link_of_another_user_leads_nowhere(log, tmp_path):
    secret = tmp_path / "inferd.ndjson"
    secret.write_bytes(BOXED)
    log.symlink_to(secret)
    assert last_sandbox_event(log) is None
    log.unlink()
    directory = log.parent
    directory.rmdir()
    directory.symlink_to(tmp_path)
    assert last_sandbox_event(log) is not None  # root's own link
    os.lchown(directory, STRANGER_UID, STRANGER_UID)
    assert last_sandbox_event(log) is None
    finding = check_log_directory(LogPlace(directory, 0, can_be_made=True))
    assert finding.verdict is Verdict.WARNING
    assert f"is a link of uid {STRANGER_UID}" in finding.detail
    assert finding.hint == f"ls -ld {directory}"


@needs_root
def test_no_hint_opens_a_file_that_another_user_may_replace(short_dir):
    def hint():
        files = [RequiredFile("model", path, None)]
        return check_readable("chat", files, lambda _: False).hint

    path = short_dir / "m.gguf"
    path.touch(0o600)
    assert hint().startswith(f"sudo chmod o+r {path}")
    os.chown(short_dir, STRANGER_UID, STRANGER_UID)
    assert hint().startswith("sudo inferd model import --system FILE")
    os.chown(short_dir, 0, 0)
    path.rename(short_dir / "other")
    path.symlink_to("other")
    assert hint().startswith("sudo inferd model import --system FILE")


# --- the lists of the kernel --------------------------------------------------------------


def test_a_socket_s_path_forges_no_line_that_stops_the_doctor(short_dir):
    with socket.socket(socket.AF_UNIX) as odd, socket.socket(socket.AF_UNIX) as own:
        odd.bind(os.fsencode(short_dir) + b"/a\n\n\xff b\n")
        own.bind(str(short_dir / "admin.sock"))
        own.listen()
        (short_dir / "admin.sock").chmod(0o600)
        assert check_sockets(short_dir).verdict is Verdict.OK


def test_a_command_line_of_any_length_is_read_up_to_a_bound(short_dir):
    lock = short_dir / "inferd.lock"
    program = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2); print(flush=True); input()"
    lock.touch()
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock), "x" * 100_000],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        found = lock_holder(short_dir)
        assert (found.pid, found.is_foreign) == (holder.pid, True)
        assert len(found.command) <= 4096
        holder.communicate(b"\n")


def test_no_process_is_named_that_has_not_the_lock(short_dir):
    lock = short_dir / "inferd.lock"
    program = (
        "import fcntl, os, sys; f = open(sys.argv[1]); fcntl.flock(f, 2)\n"
        "if os.fork(): os._exit(0)\n"
        "print(flush=True); input()"
    )
    lock.touch()
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as taker:
        assert taker.stdout is not None
        taker.stdout.readline()  # who took the lock has ended, and its child holds it
        locks = short_dir / "locks"
        listed = f"1: FLOCK  ADVISORY  WRITE {os.getpid()} {device_of(lock)} 0 EOF\n"
        locks.write_text(listed)  # as if the id were ours now
        assert lock_holder(short_dir, locks).pid == 0
        with lock.open() as file:
            taker.communicate(b"\n")
            fcntl.flock(file, fcntl.LOCK_EX)
            assert lock_holder(short_dir, locks).pid == os.getpid()


def device_of(path):
    info = path.stat()
    return f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"


# --- the admin socket ---------------------------------------------------------------------


@contextmanager
def speaking(directory, *lines):
    """Listen as a daemon, and say the last of the lines for as long as somebody reads."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "admin.sock"))
        (directory / "admin.sock").chmod(0o600)
        listener.listen()
        stopped = threading.Event()

        def serve():
            while not stopped.is_set():
                with listener.accept()[0] as peer, suppress(OSError):
                    peer.sendall(b"".join(lines[:-1]))
                    while not stopped.is_set():
                        peer.sendall(lines[-1])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            with socket.socket(socket.AF_UNIX) as last, suppress(OSError):
                last.connect(str(directory / "admin.sock"))
            thread.join()


def bound(monkeypatch, **fields):
    bounds = ExchangeBounds(FOREVER, 2**60)._replace(**fields)
    monkeypatch.setattr(runtime, "ADMIN_BOUNDS", bounds)


def test_a_daemon_that_speaks_for_ever_is_left_when_its_time_is_over(
    short_dir, monkeypatch
):
    bound(monkeypatch, seconds=0.05)
    with speaking(short_dir, CAPABLE):
        finding = ended(lambda: check_admin(short_dir))
    assert (finding.verdict, finding.detail) == (
        Verdict.FAILED,
        "no status within 0.05 s",
    )


def test_a_daemon_that_speaks_for_ever_is_left_after_so_many_bytes(
    short_dir, monkeypatch
):
    bound(monkeypatch, n_bytes=100_000)
    with speaking(short_dir, CAPABLE):
        finding = ended(lambda: check_admin(short_dir))
    assert finding.verdict is Verdict.FAILED
    assert "more bytes than a status has" in finding.detail


def test_a_listener_that_accepts_nobody_is_left_when_its_time_is_over(
    short_dir, monkeypatch
):
    bound(monkeypatch, seconds=0.05)
    with full_backlog(short_dir / "admin.sock"):
        finding = ended(lambda: check_admin(short_dir))
    assert finding.verdict is Verdict.WARNING
    assert "no daemon answers" in finding.detail


# --- the whole command ----------------------------------------------------------------------


def test_the_command_ends_among_all_of_this_and_prints_no_control_characters(
    short_dir, log
):
    os.mkfifo(log)
    os.mkfifo(short_dir / "inferd.lock")
    status = {"status": "restarting", "phase": HOSTILE, "reason": HOSTILE}
    config = short_dir / "config.toml"
    config.write_text(
        to_toml(
            {
                "backend": [mock()],
                "listen": {"directory": str(short_dir)},
                "log": {"directory": str(log.parent)},
            }
        )
    )
    environ = clean_environ() | {"HOME": str(short_dir), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "inferd", "doctor", "--config", str(config)]
    with speaking(short_dir, json.dumps(status).encode() + b"\n"):
        done = subprocess.run(
            command,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    [line] = [line for line in done.stdout.splitlines() if "] admin: " in line]
    assert "the daemon is restarting" in line
    assert len(line) < 2 * TEXT_CHARS
    assert all(char.isprintable() for char in done.stdout.replace("\n", ""))
    assert not any(line.startswith("error") for line in done.stdout.splitlines())
