"""Entry point of ``python -m inferd``, the same as ``inferd``."""

import sys

from inferd.cli import main

sys.exit(main())
