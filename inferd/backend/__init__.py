"""The interface between the server and whatever runs a model: jobs, events, capabilities."""
