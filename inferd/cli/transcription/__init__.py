"""Reading recordings, transcribing them, and writing transcripts."""
