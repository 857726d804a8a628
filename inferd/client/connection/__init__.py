"""A client's connection to one inference socket, blocking or on trio."""
