"""The configuration: its settings, and how its file is found and parsed."""
