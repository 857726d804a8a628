import fcntl
import grp
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from inferd.client.sync import ExchangeBounds
from inferd.doctor.check import Verdict
from inferd.doctor.runtime import (
    check_admin,
    check_directory,
    check_lock,
    check_sockets,
)
from inferd.service.lock import LockHolder, LockState
from tests.daemon.harness import eventually


def follow(hint):
    """Do what a hint says."""
    subprocess.run(["sh", "-c", hint], check=True)


def verdict_of(finding):
    return finding.verdict, finding.detail


# --- the directory ----------------------------------------------------------------------


def test_a_directory_that_is_not_there_is_made_by_the_daemon(short_dir):
    verdict, detail = verdict_of(check_directory(short_dir / "run"))
    assert verdict is Verdict.OK
    assert detail.endswith("does not exist yet; the daemon creates it")
    assert not (short_dir / "run").exists()


def test_a_safe_directory_is_reported_with_its_mode(short_dir):
    short_dir.chmod(0o750)
    assert verdict_of(check_directory(short_dir)) == (
        Verdict.OK,
        f"{short_dir}, mode 0750",
    )


def test_a_directory_that_anybody_may_write_to_is_a_failure(short_dir):
    short_dir.chmod(0o777)
    finding = check_directory(short_dir)
    assert finding.verdict is Verdict.FAILED
    assert "may be written by anybody" in finding.detail
    follow(finding.hint)
    assert check_directory(short_dir).verdict is Verdict.OK


def test_a_file_is_no_directory(short_dir):
    (short_dir / "file").touch()
    assert check_directory(short_dir / "file").verdict is Verdict.FAILED


def test_a_path_is_as_long_as_a_sockets_may_be(short_dir):
    room = 107 - len(os.fsencode(short_dir / "infer.sock")) - 1
    assert check_directory(short_dir / ("d" * room)).verdict is Verdict.OK
    finding = check_directory(short_dir / ("d" * (room + 1)))
    assert finding.verdict is Verdict.FAILED
    assert "have 108 bytes, at most 107 are possible" in finding.detail
    assert finding.hint == "set [listen] directory to a shorter path"


# --- the lock ---------------------------------------------------------------------------


@pytest.fixture
def lock(short_dir):
    path = short_dir / "inferd.lock"
    path.touch()
    return path


def entry_of(path, kind="FLOCK"):
    """A line of the kernel's list of locks."""
    info = path.stat()
    device = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    return f"7: {kind}  ADVISORY  WRITE 4242 {device} 0 EOF\n"


def test_a_lock_that_was_never_made_is_free(short_dir):
    assert verdict_of(check_lock(short_dir)) == (
        Verdict.OK,
        "free: no daemon has run here",
    )
    assert not any(short_dir.iterdir())


def test_a_lock_in_the_kernels_list_is_held(lock, tmp_path):
    locks = tmp_path / "locks"
    locks.write_text("1: POSIX  ADVISORY  READ 1 00:01:2 0 EOF\n" + entry_of(lock))
    assert check_lock(lock.parent, locks).detail == "held by a running daemon"


def test_a_lock_that_is_not_in_the_kernels_list_is_free(lock, tmp_path):
    locks = tmp_path / "locks"
    locks.write_text(entry_of(tmp_path) + entry_of(lock, kind="POSIX"))
    assert verdict_of(check_lock(lock.parent, locks)) == (
        Verdict.OK,
        "free: no daemon runs here",
    )


def test_the_kernel_lists_a_lock_that_is_really_held(lock):
    assert check_lock(lock.parent).detail == "free: no daemon runs here"
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        finding = check_lock(lock.parent)
    assert finding.verdict is Verdict.FAILED  # this process is no daemon
    assert finding.detail.startswith(f"held by process {os.getpid()}, which is no")
    assert finding.hint == f"kill {os.getpid()}"


def test_a_lock_of_another_program_is_free_when_that_has_ended(lock):
    program = (
        "import fcntl, sys, time\n"
        "file = open(sys.argv[1])\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(lock)]) as holder:
        try:
            assert eventually(lambda: check_lock(lock.parent).verdict is Verdict.FAILED)
            follow(check_lock(lock.parent).hint)
            assert eventually(lambda: check_lock(lock.parent).verdict is Verdict.OK)
        finally:
            holder.kill()


def test_a_lock_that_is_a_symlink_is_a_failure(short_dir):
    (short_dir / "inferd.lock").symlink_to("/etc/passwd")
    finding = check_lock(short_dir)
    assert finding.verdict is Verdict.FAILED
    assert finding.hint == f"rm {short_dir}/inferd.lock"


def test_without_the_kernels_list_nothing_is_known(lock, tmp_path):
    assert check_lock(lock.parent, tmp_path / "missing").verdict is Verdict.WARNING


# --- the sockets ------------------------------------------------------------------------


@pytest.fixture
def make_socket():
    """Make sockets that are listened at until the end of the test."""
    with ExitStack() as stack:

        def make(path, mode):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.bind(str(path))
            sock.listen()
            path.chmod(mode)

        yield make


def test_sockets_with_their_modes_are_well(short_dir, make_socket):
    make_socket(short_dir / "admin.sock", 0o600)
    make_socket(short_dir / "infer.sock", 0o660)
    assert verdict_of(check_sockets(short_dir)) == (
        Verdict.OK,
        "admin.sock 0600, infer.sock 0660",
    )


def test_every_inference_socket_is_looked_at(short_dir, make_socket):
    for leaf in ("infer.v2.sock", "infer.embed.sock", "infer.rerank.sock"):
        make_socket(short_dir / leaf, 0o660)
    detail = "infer.v2.sock 0660, infer.embed.sock 0660, infer.rerank.sock 0660"
    assert verdict_of(check_sockets(short_dir)) == (Verdict.OK, detail)
    (short_dir / "infer.rerank.sock").chmod(0o666)
    assert check_sockets(short_dir).verdict is Verdict.FAILED


def test_an_admin_socket_that_is_shared_has_the_mode_of_the_others(
    short_dir, make_socket
):
    make_socket(short_dir / "admin.sock", 0o660)
    shared = check_sockets(short_dir, admin_is_shared=True)
    assert verdict_of(shared) == (Verdict.OK, "admin.sock 0660")
    (short_dir / "admin.sock").chmod(0o600)
    alone = check_sockets(short_dir, admin_is_shared=True)
    assert alone.verdict is Verdict.FAILED


def test_a_daemon_that_loads_has_its_admin_socket_alone(short_dir, make_socket):
    make_socket(short_dir / "admin.sock", 0o600)
    assert verdict_of(check_sockets(short_dir)) == (Verdict.OK, "admin.sock 0600")


@pytest.mark.parametrize(
    ("leaf", "mode"),
    [("admin.sock", 0o660), ("infer.sock", 0o666), ("infer.sock", 0o600)],
)
def test_a_socket_with_another_mode_is_a_failure(short_dir, make_socket, leaf, mode):
    make_socket(short_dir / leaf, mode)
    finding = check_sockets(short_dir)
    assert finding.verdict is Verdict.FAILED
    assert finding.detail == f"wrong mode of {leaf}"
    follow(finding.hint)
    assert check_sockets(short_dir).verdict is Verdict.OK


def test_a_socket_of_another_group_is_a_failure(short_dir, make_socket):
    make_socket(short_dir / "infer.sock", 0o660)
    own = grp.getgrgid(os.getegid()).gr_name
    groups = {"infer.sock": "no-such-group"}
    finding = check_sockets(short_dir, groups=groups)
    assert finding.verdict is Verdict.FAILED
    assert finding.detail == f"the group of infer.sock is {own}, not no-such-group"
    assert (
        finding.hint == f"chgrp --no-dereference no-such-group {short_dir}/infer.sock"
    )
    assert check_sockets(short_dir, groups={"infer.sock": own}).verdict is Verdict.OK


def test_a_socket_that_nobody_listens_at_is_left_from_a_daemon(short_dir, make_socket):
    make_socket(short_dir / "admin.sock", 0o600)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(short_dir / "infer.sock"))
    (short_dir / "infer.sock").chmod(0o660)
    finding = check_sockets(short_dir)
    assert verdict_of(finding) == (Verdict.WARNING, "nobody listens at infer.sock")
    follow(finding.hint)
    assert check_sockets(short_dir).verdict is Verdict.OK
    missing = short_dir / "missing"
    assert check_sockets(short_dir, unix_sockets=missing).verdict is Verdict.OK


@pytest.mark.parametrize("leaf", ["admin.sock", "infer.sock"])
def test_a_socket_that_is_a_symlink_is_a_failure(short_dir, leaf):
    (short_dir / leaf).symlink_to("/nowhere")
    finding = check_sockets(short_dir)
    assert finding.verdict is Verdict.FAILED
    assert finding.hint == f"rm {short_dir / leaf}"


def test_a_service_is_started_by_systemd():
    finding = check_sockets(Path("/run/inferd/none-here"))
    assert finding.hint == (
        "sudo systemctl enable --now inferd@none-here.socket inferd@none-here.service"
    )


def test_no_sockets_mean_no_daemon(short_dir):
    finding = check_sockets(short_dir / "not there")
    assert finding.verdict is Verdict.WARNING
    assert finding.hint == "inferd serve"


# --- the daemon -------------------------------------------------------------------------


@contextmanager
def admin_socket(directory, *says):
    """One listener's daemon: it says its lines and hangs up, or never says a word."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "admin.sock"))
        listener.listen()
        listener.settimeout(90)
        thread = Thread(target=answer, args=(listener, says))
        thread.start()
        try:
            yield
        finally:
            thread.join()


def answer(listener, says):
    peer, _ = listener.accept()
    with peer:
        for line in says:
            peer.sendall(line)
        if not says:
            peer.recv(1)


@pytest.mark.parametrize(
    ("status", "verdict", "detail"),
    [
        (b'{"status":"ready"}\n', Verdict.OK, "the daemon is ready"),
        (
            b'{"status":"loading_model","phase":"mmap"}\n',
            Verdict.WARNING,
            "the daemon is loading_model mmap",
        ),
        (
            b'{"status":"restarting","phase":"backoff","reason":"killed by SIGKILL"}\n',
            Verdict.WARNING,
            "the daemon is restarting backoff: killed by SIGKILL",
        ),
    ],
)
def test_the_status_of_a_daemon_is_found(short_dir, status, verdict, detail):
    with admin_socket(short_dir, b'{"status":"capabilities"}\n', status):
        assert verdict_of(check_admin(short_dir)) == (verdict, detail)


def test_no_daemon_at_the_admin_socket_is_a_warning(short_dir):
    finding = check_admin(short_dir)
    assert finding.verdict is Verdict.WARNING
    assert finding.hint == "inferd serve"


def test_a_daemon_that_hangs_up_is_a_failure(short_dir):
    with admin_socket(short_dir, b'{"status":"capabilities"}\n'):
        assert check_admin(short_dir).verdict is Verdict.FAILED


def test_a_silent_daemon_is_a_failure(short_dir, monkeypatch):
    bounds = ExchangeBounds(0.01)
    monkeypatch.setattr("inferd.doctor.runtime.ADMIN_BOUNDS", bounds)
    with admin_socket(short_dir):
        assert verdict_of(check_admin(short_dir)) == (
            Verdict.FAILED,
            "no status within 0.01 s",
        )


def test_a_silent_daemon_that_has_the_lock_is_named(short_dir, monkeypatch):
    bounds = ExchangeBounds(0.01)
    monkeypatch.setattr("inferd.doctor.runtime.ADMIN_BOUNDS", bounds)
    holder = LockHolder(LockState.HELD, pid=4242, command="python inferd serve")
    with admin_socket(short_dir):
        for foreign in (False, True):
            found = holder._replace(command="sleep 9") if foreign else holder
            monkeypatch.setattr(
                "inferd.doctor.runtime.lock_holder", lambda _, found=found: found
            )
            assert ("kill -KILL 4242" in check_admin(short_dir).hint) is not foreign


@pytest.mark.parametrize(
    "line", [b"220 mail.example ESMTP\n", b'{"status":1}\n', b"\n"]
)
def test_a_server_with_another_protocol_is_a_failure(short_dir, line):
    with admin_socket(short_dir, line):
        assert check_admin(short_dir).verdict is Verdict.FAILED
