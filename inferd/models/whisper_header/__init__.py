"""Read the headers of whisper.cpp's model files, and refuse those that are not complete."""
