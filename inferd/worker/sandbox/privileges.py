"""What every worker gives up first: privileges, core files, descriptors beyond its need."""

import resource
from contextlib import suppress
from typing import Final

from inferd.sandbox.privileges import gain_no_privileges
from inferd.worker.limits import WORKER_OPEN_FILES

KEPT_CAPABILITIES: Final = 1 << 2
"""Of root's: to read files whatever their modes are. Which ones is Landlock's to say."""


def give_up_privileges() -> None:
    """Gain none by starting programs, leave no core files, open no more than is needed."""
    gain_no_privileges()
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, WORKER_OPEN_FILES),
    ):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(OSError):  # a filter of system calls around us
            resource.setrlimit(what, (bound, bound))
