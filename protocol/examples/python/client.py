"""A client of inferd in Python: stream an answer, embed a text, order documents.

    python client.py [DIRECTORY]

The standard library is enough.
"""

import json
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Frame = dict[str, Any]

TIMEOUT_S = 60  # of silence, before we give up
TERMINAL = ("done", "embeddings", "rerank")

GENERATE = {
    "id": "1",
    "messages": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is the capital of France?"}],
        }
    ],
    "max_tokens": 200,
}
EMBED = {"id": "2", "input": ["Paris is the capital of France"]}
RERANK = {
    "id": "3",
    "query": "capital of France",
    "documents": [
        "Berlin is the capital of Germany",
        "Paris is the capital of France",
        "Bread is baked",
    ],
}


class RequestFailedError(Exception):
    """The daemon refused the request, or did not answer it to the end."""


class UntrustedError(Exception):
    """Somebody else listens at the socket; nothing was sent."""


def check_listener(connection: socket.socket) -> None:
    """Go on only if root listens, this user, or a uid in ``INFERD_TRUST_UID``."""
    asked = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _, uid, _ = struct.unpack("iII", asked)
    named = os.environ.get("INFERD_TRUST_UID", "").split(",")
    if uid not in (0, os.geteuid()) and str(uid) not in named:
        raise UntrustedError(f"uid {uid} listens; to trust it: INFERD_TRUST_UID={uid}")


def directories() -> list[Path]:
    """List where a daemon's sockets may be, in order."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        own = Path(runtime) / "inferd"
    elif home := os.environ.get("HOME"):
        own = Path(home) / ".inferd" / "run"
    else:
        own = Path(f"/tmp/inferd-{os.getuid()}")  # noqa: S108  # where the daemon puts it
    return [own, Path("/run/inferd")]


def frames(path: Path, request: Frame) -> Iterator[Frame]:
    """Send one request; give the frames of its answer, the last one ends it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(path))
        check_listener(connection)
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as lines:
            for line in lines:
                frame = json.loads(line)
                if frame["type"] == "error":
                    raise RequestFailedError(f"{frame['code']}: {frame['message']}")
                yield frame
                if frame["type"] in TERMINAL:
                    return
    raise RequestFailedError("the connection ended before the answer did")


def generate(path: Path) -> None:
    """Print an answer while it comes."""
    for frame in frames(path, GENERATE):
        if frame["type"] == "frame" and frame["block"]["type"] == "text":
            print(frame["block"]["delta"], end="", flush=True)
    print()


def embed(path: Path) -> None:
    """Print what an embedding looks like."""
    [frame] = frames(path, EMBED)
    first = " ".join(f"{number:.4f}" for number in frame["embeddings"][0][:3])
    print(f"embedding: {frame['dimensions']} numbers, first {first}")


def rerank(path: Path) -> None:
    """Print the places of documents, the best first."""
    [frame] = frames(path, RERANK)
    print("ranking:", *(result["index"] for result in frame["results"]))


def main() -> str | None:
    """Do all three; give what went wrong, if anything did."""
    places = [Path(name) for name in sys.argv[1:2]] or directories()
    surfaces = {
        "infer.v2.sock": generate,
        "infer.embed.sock": embed,
        "infer.rerank.sock": rerank,
    }
    n_asked = 0
    for leaf, ask in surfaces.items():
        paths = [place / leaf for place in places if (place / leaf).is_socket()]
        if not paths:
            print(f"no {leaf}: skipped", file=sys.stderr)
            continue
        n_asked += 1
        try:
            ask(paths[0])
        except (OSError, ValueError, RequestFailedError, UntrustedError) as error:
            return f"{leaf}: {error}"
    return None if n_asked else f"no daemon in {places[0]}"


if __name__ == "__main__":
    sys.exit(main())
