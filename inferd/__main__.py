"""Entry point of ``python -m inferd``, the same as ``inferd``."""

import gc
import sys

from inferd.cli import main

code = main()
gc.freeze()  # or the interpreter visits all objects several times as it ends
sys.exit(code)
