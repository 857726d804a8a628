"""Many requests of one command: in order, several at once, and resumed where they ended."""
