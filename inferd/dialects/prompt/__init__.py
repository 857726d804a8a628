"""Prompt rendering: chat templates, what they support, and special tokens in client text."""
