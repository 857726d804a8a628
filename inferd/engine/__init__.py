"""The daemon's side of a worker: run its jobs, supervise the process, restart it."""
