"""Open GGUF files once, with their headers checked before llama.cpp sees them."""
