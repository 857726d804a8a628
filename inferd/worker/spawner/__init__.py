"""The process that starts the workers of remote engines, in a daemon without a network.

A filter that refuses sockets is inherited, so the daemon cannot start a process that may have
some. This one is started before it has the filter: ``python -m inferd.worker.spawner FD
PARENT_PID PROGRAM...``. It starts no program but these, reads nothing that clients sent, and
tells of the end of what it started.
"""
