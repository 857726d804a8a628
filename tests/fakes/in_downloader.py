"""Enter a downloader's sandbox, then try what nobody in there should be able to do.

``python tests/fakes/in_downloader.py DIRECTORY PORT`` prints what came of each attempt as
JSON: empty where it worked, else the name of the error.
"""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from inferd.downloader.sandbox import enter_sandbox


def try_in_downloader(directory: Path, port: int) -> dict[str, object]:
    """Have a process of its own try; give what it prints.

    Args:
        directory: of the caller's; it has a file ``secret``.
        port: of loopback that somebody listens at.
    """
    done = subprocess.run(
        [sys.executable, __file__, directory, str(port)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main() -> None:
    """Enter, try."""
    directory, port = Path(sys.argv[1]), int(sys.argv[2])
    parent = os.getppid()
    "localhost".encode("idna")  # imported here: nobody may not be able to read it
    missing = enter_sandbox(parent)
    attempts: dict[str, Callable[[], object]] = {
        "connect": lambda: socket.create_connection(("127.0.0.1", port), 10).close(),
        "ask for names": lambda: socket.getaddrinfo("localhost", 443),
        "listen": lambda: socket.create_server(("127.0.0.1", 0)),
        "make a Unix socket": lambda: socket.socket(socket.AF_UNIX),
        "make a raw socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
        "read a file": lambda: os.open(directory / "secret", os.O_RDONLY),
        "list a directory": lambda: os.listdir(directory),  # noqa: PTH208
        "write a file": lambda: os.open(directory / "new", os.O_WRONLY | os.O_CREAT),
        "append to a file": lambda: os.open(directory / "secret", os.O_WRONLY),
        "make a temporary file": lambda: os.open(directory, os.O_RDWR | os.O_TMPFILE),
        "remove a file": lambda: os.unlink(directory / "secret"),  # noqa: PTH108
        "make a directory": lambda: os.mkdir(directory / "new"),  # noqa: PTH102
        "fork": os.fork,
        "start a thread": lambda: threading.Thread(target=int).start(),
        "run a program": lambda: os.execv("/bin/true", ["true"]),  # noqa: S606
        "signal the parent": lambda: os.kill(parent, signal.SIGTERM),
        "make memory a file": lambda: os.memfd_create("m"),
        "be root": lambda: os.setresuid(0, 0, 0),
    }
    found: dict[str, object] = {name: _try(call) for name, call in attempts.items()}
    found |= {"missing": missing, "ids": [os.getuid(), os.geteuid(), os.getgid()]}
    sys.stdout.write(json.dumps(found))


def _try(call: Callable[[], object]) -> str:
    try:
        call()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, repr(error))
    except RuntimeError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
