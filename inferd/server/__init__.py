"""Sockets and tasks: it moves messages, the stages decide."""
