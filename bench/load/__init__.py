"""The clients: a process of their own that asks, notes when bytes come, and reads later."""
