"""The sockets of another daemon: a line, and the frames of its answer."""
