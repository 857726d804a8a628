"""Models from hubs and servers: which files, and how they come into the store."""
