"""A daemon that hears: descriptors come with its lines, and sound in many of them."""

import json
import os
import socket
from base64 import b64decode
from typing import Any

from tests.fakes.streams import Frame

MAX_DESCRIPTORS = 8
RECEIVE_BYTES = 64 * 1024


def receive(sock: socket.socket) -> tuple[Frame, list[bytes]]:
    """Read a line, and what lies in the memory that came with its first byte."""
    first, fds, _, _ = socket.recv_fds(sock, 1, MAX_DESCRIPTORS)
    line = first
    while not line.endswith(b"\n"):
        data = sock.recv(RECEIVE_BYTES, socket.MSG_PEEK)
        assert data, "the connection ended within a line"
        more, _, flags, _ = sock.recvmsg(data.find(b"\n") + 1 or len(data))
        assert not flags & socket.MSG_CTRUNC, "descriptors within a line"
        line += more
    return dict(json.loads(line)), [_contents(fd) for fd in fds]


def hear(sock: socket.socket) -> tuple[bytes, list[Frame]]:
    """Read lines up to the end of the sound; give the sound, and the lines."""
    lines: list[Frame] = []
    while not lines or not lines[-1]["end"]:
        lines.append(receive(sock)[0])
        assert lines[-1]["type"] == "append"
    return b"".join(b64decode(each["bytes"] or "") for each in lines), lines


def segment(text: str, start_ms: int, end_ms: int, request_id: str = "r") -> Frame:
    """Write a piece of a transcript."""
    block = {"type": "text", "delta": text, "start_ms": start_ms, "end_ms": end_ms}
    return {"type": "frame", "id": request_id, "block": block}


def partial(text: str, start_ms: int, end_ms: int, request_id: str = "r") -> Frame:
    """Write what may still change."""
    times = {"start_ms": start_ms, "end_ms": end_ms}
    return {
        "type": "status",
        "id": request_id,
        "status": "partial",
        "text": text,
        **times,
    }


def heard(request_id: str = "r", **fields: Any) -> Frame:
    """Write the end of a transcript."""
    return {
        "type": "done",
        "id": request_id,
        "usage": {"input_tokens": 50, "output_tokens": 2},
        "stop_reason": "end_turn",
        "backend": "speech",
        "transcription": {
            "language": "en",
            "audio_ms": 1000,
            "real_time_factor": 0.06,
        },
        **fields,
    }


def _contents(fd: int) -> bytes:
    try:
        return os.pread(fd, os.fstat(fd).st_size, 0)  # its offset is shared
    finally:
        os.close(fd)
