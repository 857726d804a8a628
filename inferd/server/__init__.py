"""The daemon's sockets and tasks; decisions are made by pure modules outside it."""
