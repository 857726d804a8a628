"""A client of inferd in Python that hands sound over without base64.

    python transcribe.py DIRECTORY < samples

Samples are little-endian 32-bit floats of one channel, 16,000 a second. They go to the
daemon in a sealed file in memory, with the first byte of the request.
"""

import fcntl
import json
import os
import socket
import struct
import sys
from pathlib import Path

TIMEOUT_S = 600  # of silence, before we give up: others may be heard first
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
REQUEST = {
    "id": "1",
    "messages": [
        {"role": "user", "content": [{"type": "audio", "attachment_id": "a"}]}
    ],
    "attachments": [{"kind": "audio", "id": "a", "sample_rate": 16000, "fd": 0}],
}


def sealed(samples: bytes) -> int:
    """Put samples where nobody can change them any more."""
    fd = os.memfd_create("samples", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(fd, "wb", closefd=False) as file:  # it has no path
        file.write(samples)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


def check_listener(connection: socket.socket) -> None:
    """Go on only if root listens, this user, or a uid in ``INFERD_TRUST_UID``."""
    asked = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _, uid, _ = struct.unpack("iII", asked)
    named = os.environ.get("INFERD_TRUST_UID", "").split(",")
    if uid not in (0, os.geteuid()) and str(uid) not in named:
        sys.exit(f"uid {uid} listens; to trust it: INFERD_TRUST_UID={uid}")


def transcribe(path: Path, samples: bytes) -> str | None:
    """Print each segment with its time as it comes; give what went wrong, if it did."""
    line = json.dumps(REQUEST).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(path))
        check_listener(connection)
        fd = sealed(samples)
        n_sent = socket.send_fds(connection, [line], [fd])
        os.close(fd)  # the daemon has its own
        if n_sent < len(line):
            connection.sendall(line[n_sent:])
        with connection.makefile("rb") as lines:
            for answer in lines:
                frame = json.loads(answer)
                match frame:
                    case {"type": "frame", "block": {"type": "text"} as block}:
                        start_s = block.get("start_ms", 0) / 1000
                        print(f"{start_s:8.2f} {block['delta']}", flush=True)
                    case {"type": "error", "code": code, "message": message}:
                        return f"{code}: {message}"
                    case {"type": "done"}:
                        return None
                    case _:
                        pass
    return "the connection ended before the answer did"


if __name__ == "__main__":
    sys.exit(transcribe(Path(sys.argv[1]) / "infer.v2.sock", sys.stdin.buffer.read()))
