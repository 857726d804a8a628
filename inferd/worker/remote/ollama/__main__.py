"""The worker of the kind: ``python -m inferd.worker.remote.ollama FD PARENT_PID [KEY_FD]``."""

import sys

from inferd.config.kinds.ollama import OLLAMA
from inferd.worker.remote.ollama.api import OLLAMA_API
from inferd.worker.remote.program import run_remote

if __name__ == "__main__":
    sys.exit(run_remote(OLLAMA, lambda _: OLLAMA_API))
