"""The lives of requests: those that have ended are kept for a while, and summed up."""
