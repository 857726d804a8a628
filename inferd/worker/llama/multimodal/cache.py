"""Cache of encoded media, so that the projector runs once per medium."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from inferd.worker.llama.multimodal.chunks import Chunk, MediaChunk

__all__ = ["MediaCache"]


class MediaCache:
    """LRU cache of encoded media chunks by user and digest. Any thread may call it.

    Args:
        max_bytes: host memory for embeddings.

    Bounds:
        ``max_bytes``; jobs keep evicted embeddings alive while they use them.

    Laws (held by property tests): no user finds another user's media; the size never exceeds
    ``max_bytes``.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._cached: OrderedDict[tuple[int, bytes], tuple[Chunk, ...]] = OrderedDict()
        self._lock = threading.Lock()
        self.n_bytes = 0
        """Host memory of the embeddings."""

    def find(self, owner: int, digest: bytes) -> tuple[Chunk, ...] | None:
        """Return the encoded chunks of a medium, if this user sent it before."""
        with self._lock:
            if (chunks := self._cached.get((owner, digest))) is not None:
                self._cached.move_to_end((owner, digest))
            return chunks

    def keep(self, owner: int, digest: bytes, chunks: Sequence[Chunk]) -> None:
        """Add the encoded chunks of a medium, unless they exceed ``max_bytes``."""
        n_bytes = _n_bytes(chunks)
        if n_bytes > self._max_bytes:
            return
        with self._lock:
            self.n_bytes += n_bytes - _n_bytes(self._cached.pop((owner, digest), ()))
            self._cached[owner, digest] = tuple(chunks)
            while self.n_bytes > self._max_bytes:
                _, others = self._cached.popitem(last=False)
                self.n_bytes -= _n_bytes(others)


def _n_bytes(chunks: Sequence[Chunk]) -> int:
    return sum(
        chunk.vectors.nbytes
        for chunk in chunks
        if isinstance(chunk, MediaChunk) and chunk.vectors is not None
    )
