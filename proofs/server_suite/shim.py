"""What is started in the place of llama.cpp's server: it becomes a bridge to a daemon."""

import json
import os
import socket
import sys
from typing import Final

KEEPER: Final = "INFERD_SUITE_KEEPER"
"""Environment variable with the path of the keeper's socket."""
TEST: Final = "PYTEST_CURRENT_TEST"


def main() -> None:
    """Ask the keeper of the daemons for the command line of a bridge, and become it."""
    request = {"arguments": sys.argv[1:], "test": os.environ.get(TEST, "")}
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.environ[KEEPER])
        sock.sendall(json.dumps(request).encode() + b"\n")
        with sock.makefile() as answer:
            command = json.loads(answer.readline())
    os.execv(command[0], command)  # ours


if __name__ == "__main__":
    main()
