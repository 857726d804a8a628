"""Resolve requests: validate fields, fill in defaults, and list backend requirements.

There is one module per surface: ``v1``, ``v2``, ``embed``, ``rerank``. Module
``transcription`` is for v2 requests with audio, and ``options`` has ranges shared by all.
"""
