"""Code that llama.cpp and whisper.cpp share: threads, tensor types, struct sizes."""
