"""Messages between the daemon, its workers and their preparers."""
