"""The sandbox that workers put themselves in before any native code of a library runs.

Seccomp names the system calls that are allowed: more while a worker loads, few while it
serves; Landlock names the files. ``python -m inferd.worker.sandbox SCRIPT`` runs a script
in the sandbox of a worker that serves.
"""

from inferd.worker.sandbox.privileges import give_up_privileges
from inferd.worker.sandbox.stages import Sandbox, begin_writing, enter_preparer

__all__ = ["Sandbox", "begin_writing", "enter_preparer", "give_up_privileges"]
