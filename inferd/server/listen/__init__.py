"""Listening sockets, bound here or inherited from systemd, and the accept loop."""
