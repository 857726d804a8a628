"""A client of the daemon's that sends a sound in a descriptor, and notes when words come."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.daemon import connected
from bench.load.speech import ServerError
from bench.peers.whisper_cli import Heard
from bench.sounds import SAMPLE_RATE, Sound

ID: Final = "speech"
SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
REQUEST: Final = {
    "id": ID,
    "messages": [
        {"role": "user", "content": [{"type": "audio", "attachment_id": "sound"}]}
    ],
    "attachments": [
        {"kind": "audio", "id": "sound", "sample_rate": SAMPLE_RATE, "fd": 0}
    ],
}
READ_BYTES: Final = 64 * 1024


def heard_by_daemon(path: Path, sound: Sound, *, language: str = "en") -> Heard:
    """Have the daemon write a sound down.

    Args:
        path: of its socket.
        sound: what it hears.
        language: that of the speech; the daemon need not find it out.

    Raises:
        ServerError: it did not.
    """
    line = json.dumps({**REQUEST, "language": language}).encode() + b"\n"
    with connected(path) as sock, sealed(sound.samples) as memory:
        began_at = time.monotonic()
        socket.send_fds(sock, [line], [memory])
        text, first_s = "", 0.0
        for frame in frames(sock):
            seconds = time.monotonic() - began_at
            match frame:
                case {"type": "frame", "block": {"delta": str(delta)}}:
                    text += delta
                    first_s = first_s or seconds
                case {"type": "done"}:
                    return Heard(text.strip(), seconds, first_s)
                case {"type": "error"}:
                    raise ServerError(str(frame.get("message")))
                case _:
                    pass  # nothing that was asked for
    raise ServerError("the daemon hung up")


@contextmanager
def sealed(data: bytes) -> Iterator[int]:
    """Put octets into memory that nobody can change; give its descriptor."""
    memory = os.memfd_create("sound", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(memory, "wb", buffering=0) as file:  # noqa: PTH123  # it has no path
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, SEALS)
        yield memory


def frames(sock: socket.socket) -> Iterator[dict[str, Any]]:
    """Read frames until the other end closes."""
    rest = b""
    while read := sock.recv(READ_BYTES):
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            yield json.loads(line)
