"""The API of whisper.cpp's server, as its ``examples/server`` documents it."""
