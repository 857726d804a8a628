"""Predict the memory that serving a model takes, from what the native libraries report."""
