"""Anthropic's Messages API: translation of requests, of streamed answers and of errors."""
