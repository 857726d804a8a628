"""Start processes, detect that they hang or end, and decide when and how to restart."""
