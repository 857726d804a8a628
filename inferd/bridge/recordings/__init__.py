"""Forms with a recording, as the translations of all APIs share them; no I/O."""
