"""The daemon's side of a worker: run jobs, watch the process, start it again."""
