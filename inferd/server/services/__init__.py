"""The services of the inference sockets, from the queue to response frames."""
