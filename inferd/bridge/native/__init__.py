"""The daemon's own protocol over HTTP: its requests and frames, as they are.

The client library speaks it. A request is a line of the protocol as a body; the answer is the
frames of the protocol, a line each, and a failure is an ``error`` frame.
"""
