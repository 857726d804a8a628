"""Clients that ask one short question after the other, each on a new connection.

    storm.py SOCKET N_CLIENTS

They go on until standard input ends; then the outcomes are counted as JSON.
"""

import json
import socket
import sys
import threading
import time
from collections import Counter

REQUEST = b'{"id":"s","messages":[{"role":"user","content":"hello"}]}\n'
PATIENCE_S = 120.0

outcomes: Counter[str] = Counter()
longest_s = 0.0
is_over = threading.Event()


def ask(path: str) -> str:
    """Give how it came out: ``done``, an error's code, ``refused`` or ``lost``."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        try:
            sock.connect(path)
        except OSError as error:
            return f"refused: {error.strerror}"
        try:
            sock.sendall(REQUEST)
            with sock.makefile("rb") as frames:
                for line in frames:
                    frame = json.loads(line)
                    if frame["type"] != "token":
                        return str(frame.get("code", frame["type"]))
        except TimeoutError:
            return "hung"
        except OSError:
            pass
        return "lost"


def run(path: str) -> None:
    """Ask until it is over."""
    global longest_s  # noqa: PLW0603  # a script of one purpose
    while not is_over.is_set():
        began = time.monotonic()
        outcomes[ask(path)] += 1
        longest_s = max(longest_s, time.monotonic() - began)


def main() -> None:
    """Let them ask."""
    path, n_clients = sys.argv[1], int(sys.argv[2])
    threads = [threading.Thread(target=run, args=(path,)) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    is_over.set()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps({**outcomes, "longest_s": round(longest_s, 2)}))


if __name__ == "__main__":
    main()
