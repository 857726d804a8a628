"""Pieces to events: bytes of the model to text that is whole and may be sent."""
