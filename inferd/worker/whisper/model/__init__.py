"""A whisper model's file and weights, and the memory that serving it takes."""
