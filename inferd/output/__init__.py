"""Incremental parsing of model output: bytes to text, and text to typed blocks."""
