"""Pictures and sound in requests: decoded by confined processes, and passed to the daemon."""
