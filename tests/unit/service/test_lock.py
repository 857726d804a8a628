import fcntl
import os

import pytest

from inferd.service.lock import LockState, lock_holder


@pytest.fixture
def lock(short_dir):
    path = short_dir / "inferd.lock"
    path.touch()
    return path


def entry_of(path, *, pid=4242, kind="FLOCK"):
    """A line of the kernel's list of locks."""
    info = path.stat()
    device = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    return f"7: {kind}  ADVISORY  WRITE {pid} {device} 0 EOF\n"


def test_a_lock_that_was_never_made_is_free(short_dir):
    assert lock_holder(short_dir).state is LockState.FREE


def test_a_lock_that_nobody_holds_is_free(lock, short_dir):
    locks = short_dir / "locks"
    locks.write_text("")
    assert lock_holder(short_dir, locks).state is LockState.FREE


def test_a_held_lock_is_told_with_its_process(lock, short_dir):
    locks = short_dir / "locks"
    locks.write_text(entry_of(lock, pid=os.getpid()))
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        holder = lock_holder(short_dir, locks)
    assert (holder.state, holder.pid) == (LockState.HELD, os.getpid())
    assert "pytest" in holder.command or "python" in holder.command


def test_another_kind_of_lock_is_none_of_ours(lock, short_dir):
    locks = short_dir / "locks"
    locks.write_text(entry_of(lock, kind="POSIX"))
    assert lock_holder(short_dir, locks).state is LockState.FREE


def test_without_the_list_of_the_kernel_it_is_unknown(lock, short_dir):
    holder = lock_holder(short_dir, short_dir / "missing")
    assert holder.state is LockState.UNKNOWN
    assert holder.reason.endswith("No such file or directory")


@pytest.mark.parametrize(
    ("command", "is_foreign"),
    [
        ("/opt/inferd/current/bin/python3 /opt/inferd/current/bin/inferd serve", False),
        (".venv/bin/python -m inferd serve", False),
        ("flock /run/inferd/inferd.lock sleep 9", True),
        ("sleep 9", True),
        ("", False),
    ],
)
def test_a_process_without_our_name_is_foreign(lock, short_dir, command, is_foreign):
    locks = short_dir / "locks"
    locks.write_text(entry_of(lock, pid=1))
    holder = lock_holder(short_dir, locks)._replace(command=command)
    assert holder.is_foreign is is_foreign


def test_the_kernel_s_list_has_a_real_lock(lock, short_dir):
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lock_holder(short_dir).pid == os.getpid()
