"""whisper.cpp, through ctypes.

``header`` checks a model's file before the library sees it, ``library`` binds the library
and checks that its structs fit, ``model`` holds the weights, ``listening`` is one call of it.
A job runs on a thread of its own, one at a time (``turns``): ``recording`` hears a sound
that is all there, by ``windows``; ``live`` one that still comes, by ``agreement``.
``backend`` is what the worker's threads see.
"""
