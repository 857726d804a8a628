"""The converter: published weights in, a file out: GGUF, or whisper.cpp's own.

It runs as ``python -m convert`` in an environment of its own, which has numpy and gguf
and nothing of inferd: modules here import each other relatively, and no others.
"""
