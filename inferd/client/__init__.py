"""The Python client: ``sync.Client`` blocks, ``asynchronous.AsyncClient`` runs on trio.

Both are thin shells around ``exchange``, which does no I/O. Neither needs a native
package.
"""
