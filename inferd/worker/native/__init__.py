"""Code that llama.cpp and whisper.cpp share: threads and struct sizes."""
