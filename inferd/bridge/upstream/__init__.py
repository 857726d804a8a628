"""The bridge as a client of the daemon's sockets."""
