"""The embedded models: their names, and how they are fetched."""
