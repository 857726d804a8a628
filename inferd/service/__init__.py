"""What services have in common, and what is known of those that run a daemon.

Sockets that systemd passes, notifications to it, a log that blocks nobody; the units in
systemd, and who holds a directory's lock. Nothing here connects to a socket of a daemon, which
would start a service that is stopped.
"""
