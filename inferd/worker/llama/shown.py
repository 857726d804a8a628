"""What was made of media before, so that the same ones need not be made readable again."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from inferd.worker.llama.clips import Clip, Part

__all__ = ["Shown"]


class Shown:
    """Parts of media that were made readable; any thread may call it.

    What was used least lately goes first.

    Args:
        max_bytes: of host memory that vectors may take.

    Bounds:
        ``max_bytes``, with what jobs hold that have taken it out.

    Laws (held by property tests): nobody finds what another user has sent; it is never
    over its bound.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[int, bytes], tuple[Part, ...]] = OrderedDict()
        self._lock = threading.Lock()
        self.n_bytes = 0
        """Host memory that the vectors take."""

    def find(self, owner: int, digest: bytes) -> tuple[Part, ...] | None:
        """Give the parts of a medium, all their vectors made, if this user has shown it."""
        with self._lock:
            if (parts := self._kept.get((owner, digest))) is not None:
                self._kept.move_to_end((owner, digest))
            return parts

    def keep(self, owner: int, digest: bytes, parts: Sequence[Part]) -> None:
        """Keep the parts of a medium, unless they are more than there may be."""
        n_bytes = _n_bytes(parts)
        if n_bytes > self._max_bytes:
            return
        with self._lock:
            self.n_bytes += n_bytes - _n_bytes(self._kept.pop((owner, digest), ()))
            self._kept[owner, digest] = tuple(parts)
            while self.n_bytes > self._max_bytes:
                _, others = self._kept.popitem(last=False)
                self.n_bytes -= _n_bytes(others)


def _n_bytes(parts: Sequence[Part]) -> int:
    return sum(
        part.vectors.nbytes
        for part in parts
        if isinstance(part, Clip) and part.vectors is not None
    )
