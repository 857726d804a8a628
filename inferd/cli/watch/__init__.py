"""Commands by which operators see what a daemon does, and what it did."""
