"""Another daemon as a remote engine: over its sockets, or through its bridge."""
