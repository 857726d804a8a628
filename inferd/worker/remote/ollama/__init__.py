"""Ollama's own API: translation of requests, of streamed answers and of errors."""
