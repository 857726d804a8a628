"""What the translations of all APIs share; no I/O."""
