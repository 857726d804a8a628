"""The worker of the kind: ``python -m inferd.worker.remote.anthropic FD PARENT_PID [KEY_FD]``."""

import sys

from inferd.config.kinds.anthropic import ANTHROPIC
from inferd.worker.remote.anthropic.api import ANTHROPIC_API
from inferd.worker.remote.program import run_remote

if __name__ == "__main__":
    sys.exit(run_remote(ANTHROPIC, lambda _: ANTHROPIC_API))
