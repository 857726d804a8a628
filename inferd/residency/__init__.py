"""Which models are in memory: a pure state machine, which loads on demand and unloads.

It holds no model and reads no clock; ``server.loading`` carries out what it decides.
"""
