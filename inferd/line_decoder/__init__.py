"""Decode large request lines in a sandboxed process, off the daemon's event loop."""
