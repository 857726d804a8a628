"""The Python client: ``sync.Client`` blocks, ``asynchronous.AsyncClient`` runs on trio.

Both are thin shells around ``exchange`` and ``admin``, which do no I/O. Neither needs a
native package, except to decode image and audio files: ``attachments`` does that with the
packages of ``inferd[media]``.
"""
