"""Try, in the sandbox of a worker that serves, all that must not be done there.

``python -m inferd.worker.sandbox tests/fakes/escapes.py DIRECTORY PARENT [--but] [NAME...]``
prints what came of each attempt, or of those that are named, or of all but those, as JSON:
empty where it worked, else the name of the error. Standard input is an open file, or a
connected socket. In DIRECTORY are ``own``, a file, ``private``, a
folder with a file ``secret``, and ``datagrams``, a bound socket.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import signal
import socket
import sys
import termios
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
COLUMN = 0 if platform.machine() == "x86_64" else 1
NUMBERS = {
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "kcmp": (312, 272),
    "ptrace": (101, 117),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "fchmodat2": (452, 452),
    "setxattrat": (463, 463),
    "file_setattr": (469, 469),
    "openat2": (437, 437),
    "execveat": (322, 281),
    "fanotify_init": (300, 262),
    "inotify_init1": (294, 26),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "statx": (332, 291),
    "clone": (56, 220),
    "clone3": (435, 435),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "fsopen": (430, 430),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "ioprio_set": (251, 30),
    "seccomp": (317, 277),
    "capset": (126, 91),
    "splice": (275, 76),
    "timer_create": (222, 107),
    "kexec_load": (246, 104),
    "landlock_create_ruleset": (444, 444),
    "memfd_secret": (447, 447),
    "quotactl_fd": (443, 443),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "futex": (202, 98),
    "sendto": (44, 206),
    "recvmsg": (47, 212),
}
X32 = 0x4000_0000
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
PRIVATE = 0o1000
"""``IPC_CREAT``: with a key of 0 nobody else's."""

Attempts = dict[str, Callable[[], object]]


def call(name: str | int, *arguments: object) -> int:
    """Make a system call by its number."""
    number = name if isinstance(name, int) else NUMBERS[name][COLUMN]
    ctypes.set_errno(0)
    said = LIBC.syscall(ctypes.c_long(number), *map(_long, arguments))
    if said < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(said)


def _long(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def checked(said: object) -> None:
    """Raise what a function of the C library says."""
    if said == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def outcome(attempt: Callable[[], object]) -> str:
    """Try; give the error's name."""
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "?")
    return ""


def leaving_traps(place: Path) -> Attempts:
    """Leave something behind for an accomplice: row 2 of what was found."""
    own, path = place / "own", str(place / "own").encode()
    acl = bytes.fromhex("0200000001000700ffffffff02000700e803000004000500ffffffff")
    return {
        "make a file setuid": lambda: own.chmod(0o6755),
        "make the open file setuid": lambda: os.fchmod(0, 0o6755),
        "open a folder to all": lambda: place.chmod(0o777),
        "change a mode at a folder": lambda: os.chmod("own", 0o600, dir_fd=0),
        "change a mode by a newer call": lambda: call(
            "fchmodat2", AT_FDCWD, path, 0o777, 0
        ),
        "give a file away": lambda: os.chown(own, -1, os.getgid()),
        "give the open file away": lambda: os.fchown(0, -1, os.getgid()),
        "give a link away": lambda: os.lchown(own, -1, os.getgid()),
        "add a list of rights": lambda: os.setxattr(
            own, "system.posix_acl_access", acl
        ),
        "add it to the open file": lambda: os.setxattr(0, "user.x", b"x"),
        "add it by a newer call": lambda: call(
            "setxattrat", AT_FDCWD, path, 0, b"user.x", 0, 0
        ),
        "take an attribute away": lambda: os.removexattr(own, "user.y"),
        "set flags of a file": lambda: call("file_setattr", AT_FDCWD, path, 0, 0, 0),
        "set the times of a file": lambda: os.utime(own, (1, 1)),
        "set the times of the open file": lambda: os.utime(0, (1, 1)),
        "cut the open file": lambda: os.ftruncate(0, 0),
        "lengthen the open file": lambda: os.posix_fallocate(0, 0, 1),
        "lock the open file": lambda: fcntl.flock(0, fcntl.LOCK_EX),
        "be told of others' use of it": lambda: fcntl.fcntl(0, fcntl.F_SETLEASE, 0),
    }


def reaching_others(place: Path) -> Attempts:
    """Send and receive past the daemon: row 8."""
    datagrams = str(place / "datagrams")
    address = b"\1\0" + datagrams.encode()

    def by_a_pair() -> None:
        ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.sendto(b"secret", datagrams)

    def by_what_is_open() -> None:
        checked(LIBC.sendto(0, b"x", 1, 0, address, len(address)))

    return {
        "send by a pair of sockets": by_a_pair,
        "send to an address by what is open": by_what_is_open,
        "connect what is open": lambda: checked(LIBC.connect(0, address, len(address))),
        "bind what is open": lambda: checked(LIBC.bind(0, b"\1\0\0x", 4)),
        "listen": lambda: checked(LIBC.listen(0, 1)),
        "accept": lambda: checked(LIBC.accept(0, None, None)),
        "send descriptors": lambda: checked(LIBC.sendmsg(0, None, 0)),
        "send many messages": lambda: checked(LIBC.sendmmsg(0, None, 1, 0)),
        "set options of what is open": lambda: checked(
            LIBC.setsockopt(0, 1, 2, b"1234", 4)
        ),
        "make a pair of streams": socket.socketpair,
        "make an abstract socket": lambda: socket.socket(socket.AF_UNIX).bind(
            "\0inferd"
        ),
        "share memory by System V": lambda: call("shmget", 0, 4096, PRIVATE),
        "share a queue by System V": lambda: call("msgget", 0, PRIVATE),
        "share semaphores by System V": lambda: call("semget", 0, 1, PRIVATE),
        "share a queue by POSIX": lambda: call("mq_open", b"inferd", 0, 0, 0),
        "make a file in memory": lambda: os.memfd_create("x"),
        "make secret memory": lambda: call("memfd_secret", 0),
        "run what is open": lambda: call("execveat", 0, b"", 0, 0, AT_EMPTY_PATH),
        "run a program": lambda: checked(LIBC.execv(b"/bin/true", None)),
        "make a pipe": os.pipe,
        "copy a descriptor": lambda: os.dup(0),
        "move pages into a pipe": lambda: call("splice", 0, 0, 1, 0, 1, 0),
    }


def reading_elsewhere(place: Path) -> Attempts:
    """See names and what there is to know of them: row 8, too."""
    private = place / "private"
    secret = private / "secret"
    path = str(secret).encode()
    return {
        "watch a folder": lambda: call("inotify_init1", 0),
        "watch a file system": lambda: call("fanotify_init", 0x200, 0),
        "see a folder's times": private.stat,
        "see a file's size": secret.lstat,
        "see it by another call": lambda: call("statx", AT_FDCWD, path, 0, 0xFFF, 0),
        "ask for rights": lambda: _asked(secret),
        "read a link": Path("/proc/self/exe").readlink,
        "list a folder": lambda: list(private.iterdir()),
        "read an attribute": lambda: os.getxattr(secret, "user.x"),
        "list attributes": lambda: os.listxattr(secret),
        "open a file": lambda: os.open(secret, os.O_RDONLY),
        "tell a file from none": lambda: os.open(private / "none", os.O_RDONLY),
        "open its place": lambda: os.open(secret, os.O_PATH),
        "open by another call": lambda: call("openat2", AT_FDCWD, path, 0, 24),
        "open to write": lambda: os.open(secret, os.O_WRONLY),
        "go there": lambda: os.chdir(private),
        "see where one is": os.getcwd,
        "see a file system's size": lambda: os.statvfs(private),
        "see the open file's system": lambda: os.fstatvfs(0),
        "take a handle": lambda: call("name_to_handle_at", AT_FDCWD, path, 0, 0, 0),
        "open a handle": lambda: call("open_by_handle_at", AT_FDCWD, 0, 0),
        "read Python's library": lambda: os.open(json.__file__, os.O_RDONLY),
        "read its own state": lambda: os.open("/proc/self/status", os.O_RDONLY),
        "read how long the machine runs": lambda: os.open("/proc/uptime", os.O_RDONLY),
        "use quotas": lambda: call("quotactl_fd", 0, 0, 0, 0),
    }


def _asked(path: Path) -> None:
    if not os.access(path, os.R_OK):
        _refused()


def _refused() -> None:
    raise PermissionError(errno.EPERM, "no rights, or no answer")


def changing_names(place: Path) -> Attempts:
    """Make, move and remove files."""
    own, new = place / "own", place / "new"
    return {
        "make a file": lambda: os.open(new, os.O_CREAT | os.O_WRONLY),
        "make a nameless file": lambda: os.open(place, os.O_TMPFILE | os.O_RDWR),
        "make a folder": new.mkdir,
        "make a pipe with a name": lambda: os.mkfifo(new),
        "make a link": lambda: new.symlink_to(own),
        "make a second name": lambda: new.hardlink_to(own),
        "rename a file": lambda: own.rename(new),
        "remove a file": own.unlink,
        "cut a file": lambda: os.truncate(own, 0),
    }


def bothering(parent: int) -> Attempts:
    """Act on other processes."""
    return {
        "fork": lambda: os.fork() or os._exit(0),
        "fork by the call itself": lambda: (
            call("clone", signal.SIGCHLD, 0, 0, 0, 0) or os._exit(0)
        ),
        "fork into a namespace": lambda: (
            call("clone", 0x10000011, 0, 0, 0, 0) or os._exit(0)
        ),
        "signal the parent": lambda: os.kill(parent, 0),
        "signal all": lambda: os.kill(-1, 0),
        "signal the group": lambda: os.killpg(0, 0),
        "signal a thread": lambda: call("tgkill", parent, parent, 0),
        "signal with words": lambda: call("rt_sigqueueinfo", parent, 0, 0),
        "hold the parent": lambda: call("pidfd_open", parent, 0),
        "signal by a descriptor": lambda: call("pidfd_send_signal", 0, 0, 0, 0),
        "take a descriptor": lambda: call("pidfd_getfd", 0, 0, 0),
        "advise on others' memory": lambda: call("process_madvise", 0, 0, 0, 0, 0),
        "read others' memory": lambda: call("process_vm_readv", parent, 0, 0, 0, 0, 0),
        "read it by a file": lambda: os.open(f"/proc/{parent}/mem", os.O_RDONLY),
        "compare with others": lambda: call("kcmp", parent, parent, 0, 0, 0),
        "trace the parent": lambda: call("ptrace", 0x4206, parent, 0, 0),
        "move the parent": lambda: os.sched_setaffinity(parent, {0}),
        "slow the parent down": lambda: os.setpriority(os.PRIO_PROCESS, parent, 19),
        "slow its files down": lambda: call("ioprio_set", 1, parent, 0),
        "limit the parent": lambda: _limit(parent),
        "see its time": lambda: call("clock_gettime", _clock(parent), time()),
        "see whether it is there": lambda: call("clock_getres", _clock(parent), 0),
        "wait for its time": lambda: call(
            "clock_nanosleep", _clock(parent), 0, time(), 0
        ),
        "lend it priority": lambda: call("futex", (ctypes.c_uint32 * 1)(parent), 8),
        "send out of band": lambda: call("sendto", 0, b"x", 1, socket.MSG_OOB, 0, 0),
        "receive out of band": lambda: call("recvmsg", 0, 0, socket.MSG_OOB),
        "see its limits": lambda: checked(
            LIBC.prlimit(parent, 0, None, ctypes.create_string_buffer(16))
        ),
        "be spared": lambda: os.open("/proc/self/oom_score_adj", os.O_WRONLY),
        "lead a session": os.setsid,
        "leave the group": lambda: os.setpgid(0, 0),
        "outlive the daemon": lambda: checked(LIBC.prctl(1, 0, 0, 0, 0)),
        "be traced by all": lambda: checked(LIBC.prctl(0x59616D61, -1, 0, 0, 0)),
        "be dumped": lambda: checked(LIBC.prctl(4, 1, 0, 0, 0)),
        "adopt orphans": lambda: checked(LIBC.prctl(36, 1, 0, 0, 0)),
        "type on the terminal": lambda: fcntl.ioctl(1, termios.TIOCSTI, b"x"),
    }


def _clock(pid: int) -> int:
    """Give the clock of a process's processor time."""
    return ~pid << 3 | 2


def time() -> "ctypes.Array[ctypes.c_long]":
    """Make room for a time: no seconds."""
    return (ctypes.c_long * 2)()


def _limit(parent: int) -> None:
    import resource  # noqa: PLC0415  # where no file can be opened

    resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0))


def using_the_kernel() -> Attempts:
    """Use what has had faults before, and what would take the sandbox away."""
    page = mmap.PAGESIZE
    return {
        "make a ring": lambda: call("io_uring_setup", 1, 0),
        "serve page faults": lambda: call("userfaultfd", 1),
        "share oneself out": lambda: call("unshare", 0x10000000),
        "enter a namespace": lambda: call("setns", 0, 0),
        "mount": lambda: call("mount", 0, b"/", 0, 0, 0),
        "open a file system": lambda: call("fsopen", b"tmpfs", 0),
        "keep a key": lambda: call("keyctl", 0, -3, 1),
        "load a program": lambda: call("bpf", 0, 0, 0),
        "watch the processor": lambda: call("perf_event_open", 0, 0, -1, -1, 0),
        "change the personality": lambda: call("personality", 0x0400000),
        "load a kernel": lambda: call("kexec_load", 0, 0, 0, 0),
        "filter calls": lambda: call("seccomp", 1, 0, 0),
        "ask for capabilities": lambda: call("capset", 0, 0),
        "ask for rules": lambda: call("landlock_create_ruleset", 0, 0, 1),
        "make a timer": lambda: call("timer_create", 0, 0, 0),
        "be another user": lambda: os.setuid(os.getuid()),
        "have other groups": lambda: os.setgroups([]),
        "call by another table": lambda: call(X32 | 39) if COLUMN == 0 else _refused(),
        "call what no table has": lambda: call(559),
        "map code": lambda: mmap.mmap(-1, page, prot=mmap.PROT_READ | mmap.PROT_EXEC),
        "make code of data": _make_code,
    }


def _make_code() -> None:
    LIBC.mmap.restype = ctypes.c_void_p
    page = LIBC.mmap(
        None, mmap.PAGESIZE, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
    )
    checked(LIBC.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, 7))


def main() -> None:
    """Try them all."""
    place, parent = Path(sys.argv[1]), int(sys.argv[2])
    attempts = {
        **leaving_traps(place),
        **reaching_others(place),
        **reading_elsewhere(place),
        **changing_names(place),
        **bothering(parent),
        **using_the_kernel(),
    }
    attempts["start a thread by a newer call"] = lambda: call("clone3", 0, 0)
    names = sys.argv[3:] or [*attempts]
    if names[0] == "--but":
        names = [each for each in attempts if each not in names]
    found = {name: outcome(attempts[name]) for name in names}
    print(json.dumps(found))  # noqa: T201  # a program


if __name__ == "__main__":
    main()
