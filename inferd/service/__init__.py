"""Services that run a daemon: their units in systemd, and who holds a directory's lock.

Nothing here connects to a socket of a daemon, which would start a service that is stopped.
"""
