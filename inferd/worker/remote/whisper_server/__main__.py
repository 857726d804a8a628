"""The worker of the kind: ``python -m inferd.worker.remote.whisper_server FD PARENT_PID``."""

import sys

from inferd.config.kinds.whisper_server import WHISPER_SERVER
from inferd.worker.remote.program import run_remote
from inferd.worker.remote.whisper_server.api import WHISPER_SERVER_API

if __name__ == "__main__":
    sys.exit(run_remote(WHISPER_SERVER, lambda _: WHISPER_SERVER_API))
