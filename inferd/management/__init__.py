"""The bridge's helper: it changes the store and the daemon for holders of tokens.

The HTTP bridge has no right to either. This process has, and does for the bridge what
``[bridge_helper]`` allows: ``policy`` and ``shares`` decide, ``service`` carries out, and each
pull has a process of its own, ``pulling``.
"""
