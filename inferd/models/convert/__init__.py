"""The converter of published weights into GGUF or the format of whisper.cpp.

It runs as ``python -m convert`` in an environment of its own, which has ``requirements.txt``
but not inferd: its modules import only each other, relatively.
"""
