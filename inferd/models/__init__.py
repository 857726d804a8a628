"""Models as files: the model store, what other programs have, and the embedded models."""
