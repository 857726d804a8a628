import mmap
import os
import signal
import socket

import pytest

from inferd.sandbox import bpf
from inferd.sandbox.seccomp import ENOSYS_CALLS
from inferd.sandbox.syscalls import MACHINES, syscall_numbers
from inferd.worker.sandbox.profiles import (
    ACCELERATED,
    LOADING,
    PREPARING,
    RENDERING,
    SERVING,
    allow_own_signals,
)
from tests.cases import each_case
from tests.fakes.bpf import verdict

ALL = {
    "serving": SERVING,
    "loading": LOADING,
    "rendering": RENDERING,
    "preparing": PREPARING,
    "accelerated": ACCELERATED,
}
PID = 4321
MINUS_ONE, NULL = -1, 0
BEYOND = [*range(470, 600), 1023, 2**16, 2**30, 2**31, 2**32 - 1]
"""Numbers that no table has yet; from 2**30 on, x86-64 has its calls once more."""


def words(text: str) -> set[str]:
    return {*text.split()}


CHANGES_FILES = words(
    "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat setxattr lsetxattr "
    "fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat utime utimes "
    "futimesat utimensat file_setattr mknod mknodat symlink symlinkat truncate creat"
)
REACHES_OTHERS = words(
    "socketpair shmget shmat shmctl msgget msgsnd msgrcv msgctl semget semop semctl "
    "semtimedop mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify inotify_init "
    "inotify_init1 inotify_add_watch fanotify_init fanotify_mark execveat ptrace "
    "process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_open "
    "pidfd_getfd pidfd_send_signal kcmp tkill rt_sigqueueinfo rt_tgsigqueueinfo setpriority "
    "ioprio_set sched_setparam sched_setscheduler sched_setattr setpgid setsid "
    "sendmmsg recvmmsg io_uring_setup io_uring_enter io_uring_register io_setup"
)
IS_THE_KERNEL_S = words(
    "bpf perf_event_open userfaultfd add_key request_key keyctl init_module finit_module "
    "delete_module kexec_load kexec_file_load reboot mount umount2 pivot_root chroot "
    "open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr unshare setns "
    "open_by_handle_at name_to_handle_at personality iopl ioperm modify_ldt swapon swapoff "
    "acct quotactl quotactl_fd syslog settimeofday clock_settime adjtimex clock_adjtime "
    "setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset "
    "sethostname setdomainname vhangup memfd_secret lookup_dcookie nfsservctl"
)
NAMES_FILES = words(
    "open openat openat2 stat lstat newfstatat statx access faccessat faccessat2 readlink "
    "readlinkat getdents getdents64 getcwd chdir fchdir statfs statmount listmount getxattr "
    "lgetxattr listxattr llistxattr getxattrat listxattrat file_getattr rename renameat "
    "renameat2 link linkat unlink unlinkat mkdir mkdirat rmdir"
)
STARTS_PROCESSES = {"fork", "vfork", "execve", "execveat"}


def of(machine, rules):
    """Give what a filter says of a call by its name or number, as errors."""
    code = bpf.build_filter(
        machine.architecture,
        syscall_numbers(machine),
        allow_own_signals(PID, rules),
        ENOSYS_CALLS,
    )

    def said(call: str | int, *arguments: int) -> int:
        number = syscall_numbers(machine)[call] if isinstance(call, str) else call
        return verdict(code, machine.architecture, number, arguments)

    return said


@pytest.fixture(params=MACHINES.values(), ids=lambda machine: machine.name)
def machine(request):
    return request.param


@pytest.mark.parametrize("rules", ALL.values(), ids=ALL)
def test_every_call_of_the_table_is_allowed_by_name_or_fails_with_eperm(machine, rules):
    said = of(machine, rules)
    table = syscall_numbers(machine)
    listed = {*rules, "kill", "tgkill"}
    for name, number in table.items():
        answers = {
            said(number, *[argument] * 6)
            for argument in (NULL, MINUS_ONE, 1, PID, 0x7F00_0000_0000)
        }
        if name in ENOSYS_CALLS:
            assert answers == {bpf.REFUSE_ENOSYS}
        elif name not in listed:
            assert answers == {bpf.REFUSE_EPERM}, name
        else:
            assert answers <= {bpf.ALLOW, bpf.REFUSE_EPERM}
            assert (
                rules.get(name) or name in ("kill", "tgkill") or answers == {bpf.ALLOW}
            )
    for number in BEYOND:
        assert said(number) == bpf.REFUSE_EPERM
    for number in table.values():
        assert said(2**30 | number) == bpf.REFUSE_EPERM


@each_case("rules", ALL.values(), ids=ALL)
def test_no_stage_changes_a_file_s_owner_mode_or_times_nor_reaches_others(rules):
    refused = CHANGES_FILES | REACHES_OTHERS | IS_THE_KERNEL_S
    assert refused & {*rules} == set()
    known = {
        *syscall_numbers(MACHINES["x86_64"]),
        *syscall_numbers(MACHINES["aarch64"]),
    }
    assert refused | NAMES_FILES | {*rules} <= known


def test_what_serves_names_no_file_and_starts_no_process():
    assert (NAMES_FILES | STARTS_PROCESSES) & {*SERVING} == set()
    assert (NAMES_FILES | STARTS_PROCESSES) & {*RENDERING} == set()
    assert STARTS_PROCESSES & {*LOADING} == set()
    assert STARTS_PROCESSES & {*PREPARING} == {"fork"}
    assert {"seccomp", "memfd_create", "ioctl", "fcntl"} & {*SERVING} == set()
    assert "connect" not in {*SERVING, *LOADING, *PREPARING}


def test_a_stage_takes_away_from_the_one_before():
    assert {*SERVING} < {*LOADING} < {*ACCELERATED}
    assert {*SERVING} < {*RENDERING} < {*PREPARING}
    assert {*LOADING} < {*PREPARING}


@each_case(
    ("call", "arguments", "allowed"),
    [
        ("clone", (0x3D0F00,), True),
        ("clone", (0x7D0F00,), True),
        ("clone", (0x3D0F00 | 0x10000000,), False),  # a namespace of users
        ("clone", (0x1200011,), False),
        ("clone", (0x11,), False),
        ("clone", (0,), False),
        ("mmap", (0, 4096, mmap.PROT_READ | mmap.PROT_WRITE), True),
        ("mmap", (0, 4096, mmap.PROT_READ | mmap.PROT_EXEC), False),
        ("mprotect", (0, 4096, mmap.PROT_EXEC), False),
        ("sendto", (4, 1, 1, 0, 0, 0), True),
        ("sendto", (4, 1, 1, 0, 0x7F00_0000_0000, 16), False),
        ("sendto", (4, 1, 1, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT, 0, 0), True),
        ("sendto", (4, 1, 1, socket.MSG_OOB, 0, 0), False),
        ("sendto", (4, 1, 1, 0x0400_0000, 0, 0), False),  # without a copy
        ("recvmsg", (4, 1, socket.MSG_CMSG_CLOEXEC), True),
        ("recvmsg", (4, 1, socket.MSG_OOB), False),
        ("recvmsg", (4, 1, socket.MSG_PEEK), False),
        ("futex", (1, 9 | 128, 0), True),
        ("futex", (1, 9 | 128 | 256, 0), True),
        ("futex", (1, 1, 1), True),
        ("futex", (1, 6 | 128), False),  # a lock that passes priority on
        ("futex", (1, 8), False),
        ("futex", (1, 11), False),
        ("futex", (1, 13 | 128), False),
        ("clock_gettime", (0, 1), True),
        ("clock_gettime", (11, 1), True),
        ("clock_gettime", (~PID << 3 | 2, 1), False),  # of another process
        ("clock_getres", (~PID << 3 | 2, 1), False),
        ("clock_nanosleep", (1, 1, 1), True),
        ("clock_nanosleep", (~PID << 3 | 2, 0, 1), False),
        ("clock_gettime", (~3 << 3 | 3, 1), False),  # of a device
        ("prlimit64", (0, 1), True),
        ("prlimit64", (1, 1), False),
        ("prlimit64", (PID, 1), False),
        ("kill", (PID, signal.SIGTERM), True),
        ("kill", (0, 0), False),
        ("kill", (-1, 0), False),
        ("kill", (-PID, 0), False),
        ("tgkill", (PID, 7, signal.SIGABRT), True),
        ("tgkill", (1, 1, signal.SIGABRT), False),
        ("prctl", (15,), True),  # the name of a thread
        ("prctl", (1, 0), False),  # to outlive the daemon
        ("prctl", (4, 1), False),  # to be dumpable
        ("prctl", (22, 2), False),
        ("prctl", (35,), False),
    ],
)
def test_while_serving_a_call_is_allowed_in_the_form_that_is_needed(
    machine, call, arguments, allowed
):
    said = of(machine, SERVING)(call, *arguments)
    assert said == (bpf.ALLOW if allowed else bpf.REFUSE_EPERM)


@each_case(
    ("rules", "call", "arguments", "allowed"),
    [
        (LOADING, "openat", (-100, 1, os.O_RDONLY | os.O_CLOEXEC), True),
        (LOADING, "openat", (-100, 1, os.O_PATH), False),
        (LOADING, "openat", (-100, 1, os.O_TMPFILE | os.O_RDWR), False),
        (LOADING, "mmap", (0, 4096, mmap.PROT_EXEC), True),
        (LOADING, "ioctl", (1, 0x5401), True),
        (LOADING, "ioctl", (1, 0x5412), False),  # typing on a terminal
        (LOADING, "ioctl", (1, 0x541C), False),  # a console's selection
        (LOADING, "fcntl", (1, 8), False),  # who is sent signals
        (LOADING, "fcntl", (1, 1026), False),  # who else has a file open
        (LOADING, "kill", (PID, 9), True),
        (RENDERING, "clone", (0x1200011,), False),
        (RENDERING, "recvfrom", (3, 1, 1, 0), True),
        (RENDERING, "recvfrom", (3, 1, 1, socket.MSG_OOB), False),
        (ACCELERATED, "recvfrom", (3, 1, 1, socket.MSG_PEEK), True),
        (ACCELERATED, "recvfrom", (3, 1, 1, socket.MSG_OOB), False),
        (ACCELERATED, "recvmsg", (3, 1, socket.MSG_OOB), False),
        (ACCELERATED, "sendmsg", (3, 1, socket.MSG_OOB), False),
        (ACCELERATED, "sendto", (3, 1, 1, socket.MSG_OOB, 0, 0), False),
        (RENDERING, "prctl", (1, 0), False),
        (PREPARING, "clone", (0x1200011,), True),
        (PREPARING, "clone", (0x4111,), False),
        (RENDERING, "mmap", (0, 4096, mmap.PROT_EXEC), False),
        (PREPARING, "prctl", (1, 9), True),
        (ACCELERATED, "socket", (socket.AF_UNIX, socket.SOCK_STREAM), True),
        (
            ACCELERATED,
            "socket",
            (socket.AF_UNIX, socket.SOCK_SEQPACKET | 0x80000),
            True,
        ),
        (ACCELERATED, "socket", (socket.AF_UNIX, socket.SOCK_DGRAM), False),
        (ACCELERATED, "socket", (socket.AF_INET, socket.SOCK_STREAM), False),
        (ACCELERATED, "socket", (socket.AF_NETLINK, socket.SOCK_RAW), False),
        (ACCELERATED, "clone", (0x1200011,), False),
        (ACCELERATED, "ioctl", (1, 0xC00846D6), True),
    ],
)
def test_another_stage_has_forms_of_its_own(machine, rules, call, arguments, allowed):
    said = of(machine, rules)(call, *arguments)
    assert said == (bpf.ALLOW if allowed else bpf.REFUSE_EPERM)


@each_case(
    ("rules", "n_x86_64", "n_aarch64"),
    [
        (SERVING, 54, 53),
        (RENDERING, 56, 55),
        (LOADING, 85, 79),
        (PREPARING, 89, 82),
        (ACCELERATED, 148, 132),
    ],
    ids=["serving", "rendering", "loading", "preparing", "accelerated"],
)
def test_few_calls_are_left(rules, n_x86_64, n_aarch64):
    """What the documents say; who makes a list longer says so there."""
    n_allowed = [
        len({*allow_own_signals(PID, rules)} & {*syscall_numbers(MACHINES[name])})
        for name in ("x86_64", "aarch64")
    ]
    assert n_allowed == [n_x86_64, n_aarch64]
