"""Reads large lines in a process of its own, so that none of them holds up the daemon's loop."""
