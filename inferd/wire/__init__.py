"""Protocol messages: framing, message types, and the codec between bytes and messages."""
