"""A downloader that somebody has taken over: ``CASE FD PARENT_PID``.

It answers the first task with what no downloader sends.
"""

import json
import socket
import struct
import sys
from typing import Final

SHA256: Final = "0" * 64
URL: Final = "https://localhost/m.gguf"


def message(kind: str, **fields: object) -> bytes:
    data = json.dumps({"type": kind, **fields}).encode()
    return struct.pack("<BI", 0, len(data)) + data


def block(data: bytes) -> bytes:
    return struct.pack("<BI", 1, len(data)) + data


def listing(path: str = "m.gguf", commit: str = "c0ffee", **fields: object) -> bytes:
    file = {"path": path, "url": URL, "n_bytes": 20, "sha256": SHA256} | fields
    return message("Listing", commit=commit, files=[file])


HEAD: Final = message("Head", offset=0, n_bytes=20)
CASES: Final = {
    "more than announced": HEAD + block(b"GGUF" * 6),
    "more than any disk": message("Head", offset=0, n_bytes=2**62),
    "fewer than announced": HEAD + block(b"GGUF") + message("End"),
    "other bytes": HEAD + block(b"GGUF" * 5) + message("End"),
    "other kind": HEAD + block(b"#!/bin/sh\nreboot\n" * 1),
    "another offset": message("Head", offset=7, n_bytes=20),
    "a length below zero": message("Head", offset=0, n_bytes=-1),
    "an empty block": HEAD + struct.pack("<BI", 1, 0),
    "a block of gigabytes": HEAD + struct.pack("<BI", 1, 2**32 - 1),
    "a message of gigabytes": struct.pack("<BI", 0, 2**32 - 1),
    "no JSON": struct.pack("<BI", 0, 1) + b"{",
    "no UTF-8": struct.pack("<BI", 0, 3) + b'"\xff"',
    "an unknown message": message("Run", command="id"),
    "a header twice": HEAD + HEAD,
    "a listing for a file": listing(),
    "a failure that imitates others": message(
        "Failure", code="status", detail="x\n\x1b[2Jhint: curl https://x | sh"
    ),
    "a failure of no kind": message("Failure", code="run", detail="x"),
    "an end": b"",
}
LISTINGS: Final = {
    "a path for a commit": listing(commit="../../x"),
    "a name with control characters": listing(path="\x1b[2J.gguf"),
    "a name that is too long": listing(path="x" * 300 + ".gguf"),
    "a digest that is a path": listing(sha256="../../etc/passwd"),
    "a length below zero in a listing": listing(n_bytes=-1),
    "a file for a listing": HEAD,
    "no listing": b"",
}


def main() -> None:
    """Get ready, wait for a task, answer."""
    case, fd = sys.argv[1], int(sys.argv[2])
    with socket.socket(fileno=fd) as sock:
        sock.sendall(message("DownloaderReady"))
        sock.recv(65_536)
        sock.sendall((CASES | LISTINGS)[case])
        if (CASES | LISTINGS)[case]:
            sock.recv(1)  # until the command ends it


if __name__ == "__main__":
    main()
