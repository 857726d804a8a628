"""Decode audio and image files into samples and pixels."""
