"""Requests with sound, as bytes in them, by descriptor, or appended."""

import base64
import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.daemon.connection import Connection, Frame, to_line

V2: Final = "infer.v2.sock"
RATE: Final = 16_000
SECOND: Final = bytes(4 * RATE)
"""A second of silence."""


def base64_of(data: bytes) -> str:
    """Write bytes as base64."""
    return base64.b64encode(data).decode()


def recording(sound: bytes | None = SECOND, **fields: Any) -> Frame:
    """Make a request for a recording; ``None`` for one that comes by a descriptor."""
    return _request(
        {"bytes": base64_of(sound)} if sound is not None else {"fd": 0}, fields
    )


def live(sound: bytes | None = None, **fields: Any) -> Frame:
    """Make a request to which sound is appended."""
    given = {} if sound is None else {"bytes": base64_of(sound)}
    return _request({"open": True, **given}, fields)


def _request(source: Frame, fields: Frame) -> Frame:
    content = [
        {"type": "text", "text": "a prompt"},
        {"type": "audio", "attachment_id": "a"},
    ]
    rate = fields.pop("sample_rate", RATE)
    return {
        "id": "r",
        "messages": [{"role": "user", "content": content}],
        "attachments": [{"kind": "audio", "id": "a", "sample_rate": rate, **source}],
        **fields,
    }


def appended(sound: bytes | None = None, **fields: Any) -> Frame:
    """Make a line that appends."""
    line = {"type": "append", "id": "r", "attachment_id": "a"}
    given = {} if sound is None else {"bytes": base64_of(sound)}
    return {**line, **given, **fields}


def hand_over(client: Connection, frame: Frame, contents: Iterable[bytes]) -> None:
    """Send a frame with sealed files that have these contents."""
    fds = [sealed(content) for content in contents]
    client.hand_over(to_line(frame), fds)
    _close(fds)


def sealed(content: bytes) -> int:
    """Make a sealed file in memory; the caller closes it."""
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def said(frames: Iterable[Frame]) -> str:
    """Join what was written down."""
    return "".join(frame["block"]["delta"] for frame in frames if "block" in frame)


def shared_bytes(pid: int) -> int:
    """Tell how much memory of files in memory a process has mapped or holds, roughly.

    Such files are nobody's memory but the machine's: it is what all descriptors of the
    process hold.
    """
    total = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if "memfd:" in str(link.readlink()):
                total += link.stat().st_blocks * 512
        except OSError:  # it was closed meanwhile
            continue
    return total
