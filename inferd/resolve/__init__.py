"""A request's meaning, checked once: request in, plan out, nothing left to doubt.

One module for each surface: ``text`` (v1), ``blocks`` (v2), ``embed``, ``rerank``. They
share the ranges in ``sampling``.
"""
