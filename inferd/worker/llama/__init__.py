"""llama.cpp, on its low-level API.

``library`` loads it and checks that its structs fit, ``variants`` picks its code for the
processor; ``model`` holds weights and vocabulary, ``context`` the room to compute in.
``generator`` writes answers: ``decoder`` advances all sequences in one batch, ``sampling``
chooses tokens. ``encoder`` makes vectors and scores, ``vectors`` writes them. ``backend`` is
what the worker's threads see.
"""
