"""Attachments as memfds: decoded or passed, bounded, and growing while they are read."""
