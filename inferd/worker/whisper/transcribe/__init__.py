"""Transcription of recordings and of live audio, one job at a time."""
