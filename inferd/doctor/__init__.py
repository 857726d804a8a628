"""What is wrong with this machine, and what to type."""
