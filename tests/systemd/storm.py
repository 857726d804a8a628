"""Clients that ask one short question after the other, each on a new connection.

    storm.py SOCKET N_CLIENTS [TOKEN]

With a token they ask over HTTP, as at the bridge's socket. They go on until standard input ends; then the outcomes are counted as JSON.
"""

import json
import socket
import sys
import threading
import time
from collections import Counter
from typing import BinaryIO

REQUEST = b'{"id":"s","messages":[{"role":"user","content":"hello"}]}\n'
HTTP_BODY = (
    b'{"model":"mock","stream":true,"messages":[{"role":"user","content":"hello"}]}'
)
HTTP_REQUEST = b"""POST /v1/chat/completions HTTP/1.1\r
Host: any\r
Authorization: Bearer %s\r
Content-Type: application/json\r
Content-Length: %d\r
Connection: close\r
\r
%s"""
HTTP_OK = b"HTTP/1.1 200 "
HTTP_END = b"data: [DONE]"
PATIENCE_S = 120.0
PAUSE_S = 0.02
"""Between two requests of a client: many more would prove no more."""

outcomes: Counter[str] = Counter()
longest_s = 0.0
is_over = threading.Event()


def ask(path: str, token: str) -> str:
    """Give how it came out: ``done``, an error's code, ``refused`` or ``lost``."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        try:
            sock.connect(path)
        except OSError as error:
            return f"refused: {error.strerror}"
        try:
            with sock.makefile("rb") as answer:
                if token:
                    return ask_http(sock, answer, token)
                sock.sendall(REQUEST)
                for line in answer:
                    frame = json.loads(line)
                    if frame["type"] != "token":
                        return str(frame.get("code", frame["type"]))
        except TimeoutError:
            return "hung"
        except OSError:
            pass
        return "lost"


def ask_http(sock: socket.socket, answer: BinaryIO, token: str) -> str:
    """Give ``done`` for a whole stream, or what came instead of it."""
    sock.sendall(HTTP_REQUEST % (token.encode(), len(HTTP_BODY), HTTP_BODY))
    came = answer.read()
    if came.startswith(HTTP_OK) and HTTP_END in came:
        return "done"
    return came.decode(errors="replace")[-300:] or "lost"


def run(path: str, token: str) -> None:
    """Ask until it is over."""
    global longest_s  # noqa: PLW0603  # a script of one purpose
    while not is_over.is_set():
        began = time.monotonic()
        outcomes[ask(path, token)] += 1
        longest_s = max(longest_s, time.monotonic() - began)
        is_over.wait(PAUSE_S)


def main() -> None:
    """Let them ask."""
    path, n_clients, *tokens = sys.argv[1:]
    args = (path, "".join(tokens))
    threads = [threading.Thread(target=run, args=args) for _ in range(int(n_clients))]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    is_over.set()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps({**outcomes, "longest_s": round(longest_s, 2)}))


if __name__ == "__main__":
    main()
