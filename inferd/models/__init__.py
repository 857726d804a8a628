"""Models: those that the daemon knows by name, and how they are brought in."""
