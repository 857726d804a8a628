"""Rich is not there, as where inferd is installed: only tools of ours bring it here.

structlog imports it for tracebacks in colour if it can, in each daemon.
"""

raise ImportError
