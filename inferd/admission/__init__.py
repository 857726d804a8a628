"""Admission control: which requests run, wait or are rejected; pure decisions."""
