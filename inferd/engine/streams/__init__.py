"""Conversion of a running job's results into events for its client."""
