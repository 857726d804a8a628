"""The library's clients: ``blocking`` for threads, ``concurrent`` for trio and asyncio.

Both run the plans of ``inferd.client.core`` over the daemon's sockets: ``sockets`` and
``async_sockets``.
"""
