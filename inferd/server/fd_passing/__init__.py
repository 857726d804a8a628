"""Descriptors that clients pass: received, counted, and closed without blocking."""
