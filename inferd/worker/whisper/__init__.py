"""Transcription with whisper.cpp, through ctypes.

``library`` binds it and checks its structs; ``model`` reads the header of a file before the
library does, and holds the weights. ``transcribe`` runs one job at a time, each on a thread
of its own: ``offline`` a complete recording, ``streaming`` audio that is still appended.
``backend`` is what the worker's threads call.
"""
