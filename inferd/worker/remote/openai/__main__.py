"""The worker of the kind: ``python -m inferd.worker.remote.openai FD PARENT_PID [KEY_FD]``."""

import sys

from inferd.config.kinds.openai import OPENAI
from inferd.worker.remote.openai.api import OPENAI_API
from inferd.worker.remote.program import run_remote

if __name__ == "__main__":
    sys.exit(run_remote(OPENAI, lambda _: OPENAI_API))
