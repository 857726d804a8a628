"""Open GGUF files and validate their headers before llama.cpp sees them."""
