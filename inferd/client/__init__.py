"""The Python client: ``sync.FrameClient`` blocks, ``asynchronous.AsyncFrameClient`` runs on trio.

Both are thin shells around ``exchange`` and ``admin``, which do no I/O. Neither needs a
native package, except to decode image and audio files: ``attachments`` does that with the
packages of ``inferd[media]``.
"""
