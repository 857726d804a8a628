"""Speculative decoding: what drafts tokens, and how many are worth drafting."""
