"""The process that speaks to hubs and servers for ``inferd model pull``.

It has a network and nothing else: it writes no file, starts no process and is not root.
What it receives goes through a socket to the command, which checks and stores it. Nothing
imports this package; ``inferd.models.pull.process`` starts it. ``confine`` is a program of
its own, which pip and others are started by: ``inferd.models.packages.programs``.
"""
