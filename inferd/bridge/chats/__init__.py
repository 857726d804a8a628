"""Chats that are kept: their routes, their forms, and the answers that outlive connections.

``requests``, ``documents``, ``events`` and ``prompt`` translate, and are pure; ``answers``
generates, in tasks of its own; ``routes`` is the shell.
"""
