"""Enter a worker's sandbox, then try what nobody in there should be able to do.

``python tests/fakes/in_worker_sandbox.py MODEL OTHER POLICY STAGE`` prints what came of each attempt as
JSON: empty where it worked, else the name of the error.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from inferd.config.kinds.kind import Sandbox
from inferd.worker.sandbox import WorkerSandbox, drop_privileges

PTRACE_SEIZE = 0x4206
PR_SET_PDEATHSIG = 1
IO_URING_SETUP = 425
X32 = 0x4000_0000
GETPID = 39


def try_in_sandbox(
    directory: Path, *, policy: Sandbox = Sandbox.CPU, stage: str = "loading"
) -> dict[str, Any]:
    """Have a process of its own try; give what it prints.

    Args:
        directory: an empty one, for the models.
        policy: which sandbox.
        stage: "loading" or "serving".
    """
    model, other = directory / "m.gguf", directory / "other.gguf"
    for path in (model, other):
        path.write_bytes(b"weights")
    done = subprocess.run(
        [
            *(sys.executable, __file__, model, other),
            *(policy, stage),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Open the model, enter, try."""
    model, other, policy, stage = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(model, os.O_RDONLY)
    daemons, ours = socket.socketpair()
    send_medium(daemons)
    drop_privileges()
    sandbox = WorkerSandbox()
    boxed = sandbox.enter_loading(Sandbox(policy), [fd])
    if stage == "serving":
        sandbox.enter_serving()
    attempts = reading(fd, Path(model), Path(other))
    attempts["receive a medium"] = lambda: receiving(ours)
    if not boxed.files_unrestricted:
        attempts |= writing(Path(model), Path(other)) | running()
    attempts |= calling(libc, is_open=boxed.files_unrestricted)
    print(  # noqa: T201  # a program
        json.dumps(
            {
                "boxed": msgspec.to_builtins(boxed),
                "core": resource.getrlimit(resource.RLIMIT_CORE),
                **{name: outcome(attempt) for name, attempt in attempts.items()},
            }
        )
    )


def outcome(attempt: Callable[[], object]) -> str:
    """Try; give the error's name."""
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "?")
    return ""


def reading(fd: int, model: Path, other: Path) -> dict[str, Callable[[], object]]:
    """Read files."""
    daemon = Path(f"/proc/{os.getppid()}")
    return {
        "read the model": model.read_bytes,
        "open the model's descriptor anew": Path(f"/proc/self/fd/{fd}").read_bytes,
        "read another model": other.read_bytes,
        "read passwords": Path("/etc/shadow").read_bytes,
        "list the root": lambda: list(Path("/").iterdir()),
        "read the daemon's environment": (daemon / "environ").read_bytes,
        "see the daemon's memory": (daemon / "maps").read_bytes,
        "read what it is made of": Path(socket.__file__).read_bytes,
        "ask for memory": Path("/proc/self/statm").read_bytes,
    }


def send_medium(daemons: socket.socket) -> None:
    """Send a file in memory over a socket."""
    fd = os.memfd_create("medium", os.MFD_CLOEXEC)
    os.write(fd, b"pixels")
    socket.send_fds(daemons, [b"x"], [fd])


def receiving(ours: socket.socket) -> None:
    """Get it, and read it."""
    _, [copy], _, _ = socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
    if os.pread(copy, 10, 0) != b"pixels":
        raise OSError(errno.EIO, "other pixels")


def writing(model: Path, other: Path) -> dict[str, Callable[[], object]]:
    """Change files."""
    return {
        "write to the model": lambda: model.open("r+b").close(),
        "cut another model": lambda: os.truncate(other, 0),
        "make a file": (model.parent / "new").touch,
        "make a directory": (model.parent / "new").mkdir,
        "remove the model": model.unlink,
        "write to its own code": lambda: Path(__file__).open("r+b").close(),
        "write to nothing": lambda: Path(os.devnull).write_bytes(b"x"),
    }


def running() -> dict[str, Callable[[], object]]:
    """Go on as two, and bother others."""
    return {
        "fork": lambda: os.fork() or os._exit(0),
        "start Python": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
        "start a thread": lambda: threading.Thread(target=int).start(),
        "signal the daemon": lambda: os.kill(os.getppid(), 0),
        "signal itself": lambda: os.kill(os.getpid(), signal.SIGCONT),
    }


def calling(libc: ctypes.CDLL, *, is_open: bool) -> dict[str, Callable[[], object]]:
    """Make system calls."""

    def called(number: int, *arguments: int) -> None:
        if libc.syscall(number, *arguments) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def prctl(what: int, value: object) -> None:
        if libc.prctl(what, value, 0, 0, 0) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def ptrace() -> None:
        if is_open or libc.ptrace(PTRACE_SEIZE, os.getppid(), None, None) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return {
        "open a network socket": lambda: socket.socket(socket.AF_INET).close(),
        "open a datagram socket": lambda: socket.socket(
            socket.AF_INET6, socket.SOCK_DGRAM
        ).close(),
        "open a Unix socket": lambda: socket.socket(socket.AF_UNIX).close(),
        "open a netlink socket": lambda: socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW
        ).close(),
        "make a ring": lambda: called(IO_URING_SETUP, 1, 0),
        "outlive the daemon": lambda: prctl(PR_SET_PDEATHSIG, 0),
        "lead a session": os.setsid,
        "leave the group": lambda: os.setpgid(0, 0),
        "call by another table": lambda: called(X32 | GETPID),
        "trace the daemon": ptrace,
    }


if __name__ == "__main__":
    main()
