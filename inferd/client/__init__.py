"""The Python client: ``sync.Client`` blocks, ``asynchronous.AsyncClient`` runs on trio.

Both are thin shells around ``exchange`` and ``admin``, which do no I/O. None needs a
native package, but for files of pictures and sound: ``attachments`` decodes them with what
``inferd[media]`` brings.
"""
