"""Chats that are kept: their routes, their forms, and the answers that outlive connections.

``requests``, ``attachments``, ``documents``, ``events`` and ``question`` translate, and are pure;
``handlers`` stores and reads; ``answers`` generates, in tasks of its own.
"""
