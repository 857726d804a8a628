"""Long request lines: kept in parts, decoded in child processes, a few at a time."""
