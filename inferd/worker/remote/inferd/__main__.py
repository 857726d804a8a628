"""The worker of the kind: ``python -m inferd.worker.remote.inferd FD PARENT_PID [KEY_FD]``."""

import sys

from inferd.config.kinds.inferd import INFERD
from inferd.worker.remote.inferd.api import api_of
from inferd.worker.remote.program import run_remote

if __name__ == "__main__":
    sys.exit(run_remote(INFERD, api_of))
