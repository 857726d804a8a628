"""The kind ``whisper-server``: ``/inference`` of whisper.cpp's server."""
