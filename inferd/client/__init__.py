"""The Python client: ``sync.Client`` blocks, ``asynchronous.AsyncClient`` runs on trio.

Both are thin shells around ``exchange`` and ``admin``, which do no I/O. None needs a
native package.
"""
