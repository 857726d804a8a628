"""Another user's process at the sockets of a directory, which keeps what it is sent."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STRANGER_UID: Final = 64_123
"""Of nobody on this machine."""

_PROGRAM: Final = """
import os, selectors, socket, sys

uid, directory, *leaves = sys.argv[1:]
os.setgroups([])
os.setresgid(int(uid), int(uid), int(uid))
os.setresuid(int(uid), int(uid), int(uid))
selector = selectors.DefaultSelector()
for leaf in leaves:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(directory, leaf))
    os.chmod(os.path.join(directory, leaf), 0o777)
    listener.listen()
    selector.register(listener, selectors.EVENT_READ, True)
selector.register(0, selectors.EVENT_READ, None)
print("listening", flush=True)
n_clients, heard, is_over = 0, b"", False
while not is_over or selector.select(0):
    for key, _ in selector.select(0 if is_over else None):
        if key.data is None:
            is_over = True
            selector.unregister(0)
        elif key.data:
            connection, _ = key.fileobj.accept()
            selector.register(connection, selectors.EVENT_READ, False)
            n_clients += 1
        elif data := key.fileobj.recv(65536):
            heard += data
        else:
            selector.unregister(key.fileobj)
print(n_clients, heard.hex())
"""


@dataclass
class Impostor:
    """What it has seen, once it has ended."""

    n_clients: int = 0
    heard: bytes = b""


@contextmanager
def impostor(
    directory: Path, *leaves: str, uid: int = STRANGER_UID
) -> Iterator[Impostor]:
    """Listen as another user, in a directory where that user may; only root can."""
    command = [sys.executable, "-c", _PROGRAM, str(uid), str(directory), *leaves]
    seen = Impostor()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "listening\n"
        try:
            yield seen
        finally:
            process.stdin.close()
            n_clients, _, heard = process.stdout.read().strip().partition(" ")
            seen.n_clients, seen.heard = int(n_clients), bytes.fromhex(heard)
