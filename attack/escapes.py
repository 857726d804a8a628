"""Try to get out of a worker's box, from inside; run by ``inferd.worker.sandbox``.

    escapes.py PRIVATE SOCKET OWNER

Each try writes a JSON object to standard output: its name, whether the box held, and why.
It imports the standard library alone, and is no part of any package: it is run from its
source. A system call that is refused is one that fails with an error which says so; any
other end of it is an escape.

Args:
    PRIVATE: a directory of this user's with the files ``file``, ``program`` and ``moved``.
    SOCKET: a datagram socket that somebody outside listens at.
    OWNER: the process that looks on from outside.
"""

import ctypes
import errno
import json
import os
import platform
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial

REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EXDEV}
ABSENT = {errno.ENOENT}
"""Where Landlock hides nothing but the operation is one of looking alone."""
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
NOWHERE = -1
AT_FDCWD = -100
SIZE = 4096

# Numbers on x86-64 and on 64-bit ARM.
_NUMBERS = {
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "execveat": (322, 281),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "request_key": (249, 218),
    "mount": (165, 40),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "clone3": (435, 435),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "kcmp": (312, 272),
    "acct": (163, 89),
    "swapon": (167, 224),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "fchmodat2": (452, 452),
    "cachestat": (451, 451),
    "process_madvise": (440, 440),
    "memfd_secret": (447, 447),
    "personality": (135, 92),
    "setxattrat": (463, 463),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setresuid": (117, 147),
    "setgroups": (116, 159),
    "prlimit64": (302, 261),
    "ioprio_set": (251, 30),
    "sched_setscheduler": (144, 119),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "sendto": (44, 206),
    "recvmsg": (47, 212),
    "clock_gettime": (228, 113),
    "futex": (202, 98),
}


def call(name: str, *arguments: object) -> object:
    """Make a system call by its number."""
    place = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    values = [
        ctypes.c_long(each) if isinstance(each, int) else each for each in arguments
    ]
    ctypes.set_errno(0)
    result = LIBC.syscall(ctypes.c_long(_NUMBERS[name][place]), *values)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def calls(private: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Give what is tried with files."""
    file, moved = f"{private}/file", f"{private}/moved"
    yield "chmod", lambda: os.chmod(file, 0o4777)
    yield "chmod a directory", lambda: os.chmod(private, 0o777)
    yield "fchmodat2", lambda: call("fchmodat2", AT_FDCWD, file.encode(), 0o777, 0)
    yield "chown", lambda: os.chown(file, os.getuid(), os.getgid())
    yield "lchown", lambda: os.lchown(file, os.getuid(), os.getgid())
    yield "setxattr", lambda: os.setxattr(file, "user.a", b"1")
    yield "set an ACL", lambda: os.setxattr(private, "system.posix_acl_access", acl())
    yield "removexattr", lambda: os.removexattr(file, "user.there")
    yield "getxattr", lambda: os.getxattr(file, "user.there")
    yield "utime", lambda: os.utime(file, (1, 1))
    yield "truncate", lambda: os.truncate(file, 0)
    yield "open to read", lambda: os.open(file, os.O_RDONLY)
    yield "open to write", lambda: os.open(file, os.O_WRONLY)
    yield "make a file", lambda: os.open(f"{private}/new", os.O_CREAT | os.O_WRONLY)
    yield (
        "make a file without a name",
        lambda: os.open(private, os.O_TMPFILE | os.O_RDWR),
    )
    yield "mkdir", lambda: os.mkdir(f"{private}/directory")
    yield "symlink", lambda: os.symlink("/", f"{private}/symlink")
    yield "link", lambda: os.link(file, f"{private}/link")
    yield "rename", lambda: os.rename(moved, f"{private}/renamed")
    yield "unlink", lambda: os.unlink(moved)
    yield "rmdir", lambda: os.rmdir(f"{private}/empty")
    yield "mkfifo", lambda: os.mkfifo(f"{private}/fifo")
    yield "list a directory", lambda: os.listdir(private)
    yield "list the root", lambda: os.listdir("/etc")
    yield "list home directories", lambda: os.listdir("/home")
    yield (
        "open_by_handle_at",
        lambda: call("open_by_handle_at", AT_FDCWD, b"\0" * 64, 0),
    )
    yield (
        "name_to_handle_at",
        lambda: call(
            "name_to_handle_at",
            AT_FDCWD,
            file.encode(),
            (ctypes.c_char * 256)(),
            (ctypes.c_int * 2)(),
            0,
        ),
    )
    yield "inotify", lambda: call("inotify_init1", 0)
    yield "fanotify", lambda: call("fanotify_init", 0, 0)
    yield (
        "write to /dev/shm",
        lambda: os.open("/dev/shm/inferd-attack", os.O_CREAT | os.O_RDWR),
    )
    yield "write to /tmp", lambda: os.open("/tmp/inferd-attack", os.O_CREAT | os.O_RDWR)
    yield "the terminal", lambda: os.open("/dev/tty", os.O_RDWR)
    yield "a new terminal", lambda: os.open("/dev/ptmx", os.O_RDWR)
    yield "stat", lambda: os.stat(file)
    yield "statx of a private directory", lambda: os.stat(private)
    yield "access", lambda: accessed(file)


def accessed(path: str) -> object:
    """Ask whether a file is there."""
    if not os.access(path, os.F_OK):
        raise OSError(errno.EACCES, "said to be absent")
    return path


def acl() -> bytes:
    """Write an access control list by which everybody may enter."""
    entries = ((1, 7, -1), (4, 7, -1), (32, 7, -1))
    words = b"".join(
        tag.to_bytes(2, "little")
        + rights.to_bytes(2, "little")
        + (who & 0xFFFFFFFF).to_bytes(4, "little")
        for tag, rights, who in entries
    )
    return (2).to_bytes(4, "little") + words


def channels(path: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Give what is tried to send to or receive from others."""
    families = (
        "AF_UNIX",
        "AF_INET",
        "AF_INET6",
        "AF_NETLINK",
        "AF_PACKET",
        "AF_VSOCK",
        "AF_ALG",
    )
    for name in families:
        family = getattr(socket, name)
        yield f"socket {name}", partial(socket.socket, family, socket.SOCK_DGRAM)
    yield "a stream socket", lambda: socket.socket(socket.AF_UNIX)
    yield "a pair of datagram sockets", lambda: pair(socket.SOCK_DGRAM, path)
    yield "a pair of packet sockets", lambda: pair(socket.SOCK_SEQPACKET, path)
    yield "shmget", lambda: call("shmget", 0x1DFE, SIZE, 0o1666)
    yield "msgget", lambda: call("msgget", 0x1DFE, 0o1666)
    yield "semget", lambda: call("semget", 0x1DFE, 1, 0o1666)
    yield (
        "mq_open",
        lambda: call("mq_open", b"inferd-attack", os.O_CREAT | os.O_RDWR, 0o600, None),
    )
    yield "io_uring", lambda: call("io_uring_setup", 4, (ctypes.c_char * 256)())


def pair(kind: int, path: str) -> object:
    """Have one end of a pair reach a socket with a path."""
    near, far = socket.socketpair(socket.AF_UNIX, kind)
    try:
        near.sendto(b"out", path)
    except OSError:
        near.connect(path)
        near.send(b"out")
    return near, far


def programs(private: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Give what is tried to run."""
    yield "fork", lambda: child(os.fork)
    yield "vfork", vfork
    yield "clone3", lambda: call("clone3", (ctypes.c_char * 88)(), 88)
    yield (
        "posix_spawn",
        lambda: os.posix_spawn(sys.executable, ["python", "-c", ""], {}),
    )
    yield "memfd_create and fexecve", in_memory
    yield "memfd_create", lambda: call("memfd_create", b"x", 0)
    yield (
        "execve of a program of its own",
        lambda: os.execv(f"{private}/program", ["x"]),
    )
    yield "execve of a shell", lambda: os.execv("/bin/sh", ["sh", "-c", "exit 7"])
    yield (
        "execve of this Python",
        lambda: os.execv(sys.executable, ["python", "-c", "import os; os._exit(7)"]),
    )


def child(fork: Callable[[], int]) -> object:
    """Start a process, which ends at once."""
    pid = fork()
    if pid == 0:
        os._exit(0)
    return pid


def vfork() -> object:
    """Start a process as C does for others; it shares memory, so no Python runs in it."""
    flags = {"x86_64": 56, "aarch64": 220}
    ctypes.set_errno(0)
    found = LIBC.syscall(
        ctypes.c_long(flags[platform.machine()]),
        ctypes.c_long(int(signal.SIGCHLD)),
        None,
        None,
        None,
        None,
    )
    if found == 0:
        os._exit(0)
    if found == -1:
        raise OSError(ctypes.get_errno(), "clone")
    return found


def in_memory() -> object:
    """Run a program that is in no file system."""
    fd = int(str(call("memfd_create", b"x", 0)))
    os.write(fd, b"#!/bin/sh\nexit 7\n")
    return call("execveat", fd, b"", None, None, 0x1000)


def powers(owner: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Give what is tried with the kernel and with other processes."""
    space = (ctypes.c_char * SIZE)()
    yield "kill the owner", lambda: os.kill(owner, 0)
    yield "kill everybody", lambda: os.kill(-1, 0)
    yield "ptrace", lambda: call("ptrace", 16, owner, 0, 0)
    yield (
        "process_vm_readv",
        lambda: call("process_vm_readv", owner, space, 1, space, 1, 0),
    )
    yield (
        "process_vm_writev",
        lambda: call("process_vm_writev", owner, space, 1, space, 1, 0),
    )
    yield "pidfd_open", lambda: call("pidfd_open", owner, 0)
    yield "the owner's memory", lambda: os.open(f"/proc/{owner}/mem", os.O_RDWR)
    yield "the owner's environment", lambda: open(f"/proc/{owner}/environ", "rb").read()
    yield "the owner's files", lambda: os.readlink(f"/proc/{owner}/fd/0")
    yield (
        "the owner's limits",
        lambda: call("prlimit64", owner, 7, (ctypes.c_long * 2)(0, 0), None),
    )
    yield "the owner's priority", lambda: os.setpriority(os.PRIO_PROCESS, owner, 19)
    yield "the owner's processors", lambda: os.sched_setaffinity(owner, {0})
    yield (
        "the owner's scheduling",
        lambda: call("sched_setscheduler", owner, 3, (ctypes.c_int * 1)(0)),
    )
    yield "the owner's input and output", lambda: call("ioprio_set", 1, owner, 3 << 13)
    yield (
        "the own score for killing",
        lambda: open("/proc/self/oom_score_adj", "w").write("0"),
    )
    clock = ~owner << 3 | 2
    yield "the owner's time", lambda: call("clock_gettime", clock, space)
    yield (
        "a lock that lends the owner priority",
        lambda: call("futex", (ctypes.c_uint32 * 1)(owner), 8, 0, 0, 0, 0),
    )
    yield "kcmp", lambda: call("kcmp", owner, os.getpid(), 0, 0, 0)
    none = (0,) * 5
    for name in (
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "add_key",
        "keyctl",
        "request_key",
        "mount",
        "umount2",
        "setns",
        "chroot",
        "pivot_root",
        "open_tree",
        "move_mount",
        "fsopen",
        "mount_setattr",
        "acct",
        "swapon",
        "init_module",
        "finit_module",
        "delete_module",
        "kexec_load",
        "settimeofday",
        "clock_settime",
        "sethostname",
        "setdomainname",
        "quotactl",
        "migrate_pages",
        "process_madvise",
        "memfd_secret",
        "setgroups",
        "syslog",
        "vhangup",
    ):
        yield name, partial(call, name, *none)
    yield "unshare a user namespace", lambda: call("unshare", 0x10000000)
    yield "unshare files", lambda: call("unshare", 0x00020000)
    yield "setuid 0", lambda: call("setuid", 0)
    yield "setresuid to another", lambda: call("setresuid", 70_199, 70_199, 70_199)
    yield "become a leader", os.setsid
    yield "personality", lambda: call("personality", 0x0040000)


def tried(name: str, attempt: Callable[[], object]) -> dict[str, object]:
    """Try one; only an error that says no is one that holds."""
    try:
        found = attempt()
    except OSError as error:
        word = errno.errorcode.get(error.errno or 0, str(error.errno))
        is_held = error.errno in REFUSED
        return {"name": name, "is_held": is_held, "detail": word}
    except Exception as error:
        return {"name": name, "is_held": False, "detail": repr(error)[:200]}
    return {"name": name, "is_held": False, "detail": f"it works: {str(found)[:100]}"}


def main() -> None:
    """Try all of them."""
    private, path, owner = sys.argv[1], sys.argv[2], int(sys.argv[3])
    listed = [*calls(private), *channels(path), *powers(owner), *programs(private)]
    for name, attempt in listed:
        sys.stdout.write(json.dumps(tried(name, attempt)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
