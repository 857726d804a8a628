"""whisper.cpp, through ctypes.

``header`` checks a model's file before the library sees it, ``library`` binds the library
and checks that its structs fit.
"""
