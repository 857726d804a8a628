"""Sound for requests: the recorded clip, and noises that no speaker makes."""

import array
import base64
import fcntl
import math
import os
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

RATE: Final = 16_000
SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

Request = dict[str, Any]


def read_wav(path: Path) -> bytes:
    """Read 16-bit mono speech as little-endian floats."""
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels()) == (RATE, 1)
        samples = array.array("h", file.readframes(file.getnframes()))
    return array.array("f", (each / 32768 for each in samples)).tobytes()


def silence(seconds: float) -> bytes:
    """Make samples of zero."""
    return bytes(4 * int(seconds * RATE))


def tone(seconds: float, *, level: float = 0.5) -> bytes:
    """Make a sine of 440 Hz, cut off at 1 as an amplifier does."""
    angles = (2 * math.pi * 440 * place / RATE for place in range(int(seconds * RATE)))
    loud = (max(-1.0, min(1.0, level * math.sin(each))) for each in angles)
    return array.array("f", loud).tobytes()


def sealed(data: bytes) -> int:
    """Put bytes in a file in memory that nobody can change any more."""
    fd = os.memfd_create("sound", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


def text64(data: bytes) -> str:
    """Write bytes as base64."""
    return base64.b64encode(data).decode()


def speech(
    data: bytes | None = None, *, prompt: str = "", rate: int = RATE, **fields: Any
) -> Request:
    """Make a request to write speech down.

    Args:
        data: its samples; ``None`` for an attachment that is open and empty.
        prompt: the text before it.
        rate: samples a second, as it says.
        fields: more of the request.
    """
    how = {"open": True} if data is None else {"bytes": text64(data)}
    attachment = {"kind": "audio", "id": "a", "sample_rate": rate, **how}
    return speech_in(attachment, prompt=prompt, **fields)


def speech_in(attachment: Request, *, prompt: str = "", **fields: Any) -> Request:
    """Make a request to write down an attachment as it stands."""
    words = [{"type": "text", "text": prompt}] if prompt else []
    content = [*words, {"type": "audio", "attachment_id": "a"}]
    messages = [{"role": "user", "content": content}]
    return {"id": "s", "messages": messages, "attachments": [attachment], **fields}


def said(frames: Sequence[Request]) -> str:
    """Join what was heard."""
    return "".join(each["block"]["delta"] for each in frames if each["type"] == "frame")


def spans(frames: Sequence[Request]) -> list[tuple[int, int]]:
    """Give the times of what was heard, in milliseconds."""
    return [
        (each["block"]["start_ms"], each["block"]["end_ms"])
        for each in frames
        if each["type"] == "frame"
    ]
