"""One client's connection: its requests are read ahead, answered in order, and bounded."""
