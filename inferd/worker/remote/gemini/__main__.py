"""The worker of the kind: ``python -m inferd.worker.remote.gemini FD PARENT_PID [KEY_FD]``."""

import sys

from inferd.config.kinds.gemini import GEMINI
from inferd.worker.remote.gemini.api import GEMINI_API
from inferd.worker.remote.program import run_remote

if __name__ == "__main__":
    sys.exit(run_remote(GEMINI, lambda _: GEMINI_API))
