"""The kinds of backends: what everything outside a kind's own packages knows of it."""
