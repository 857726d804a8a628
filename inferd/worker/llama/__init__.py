"""llama.cpp, on its low-level API.

``library`` loads it and checks that its structs fit; ``model`` holds weights, vocabulary
and context; ``sampling`` chooses tokens; ``decoder`` advances all sequences in one batch;
``backend`` is what the worker's threads see.
"""
