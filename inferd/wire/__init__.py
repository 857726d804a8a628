"""Bytes to messages and back: framing, the messages themselves, and their codec."""
