"""llama.cpp, through its C API.

``library`` loads it and checks its structs, ``gguf`` validates a file's header, ``model``
holds weights, vocabulary and contexts. ``generator`` answers prompts with ``generate``, which
advances all sequences in one batch; ``encoder`` computes embeddings and rerank scores.
``grammar`` constrains answers, ``multimodal`` reads images and audio, ``speculation`` drafts
tokens. ``prepare`` runs in a process beside the worker. ``backend`` implements the interface
that the worker's threads call.
"""
