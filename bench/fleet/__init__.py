"""A simulation of many machines: how many users get their first token how soon.

``simulation`` has the model, and takes the times of a service as arguments.
"""
