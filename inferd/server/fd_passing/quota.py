"""Quota of descriptors that clients passed and that are open here."""

from collections import Counter
from collections.abc import Sequence
from threading import Thread
from typing import Final, NamedTuple

from inferd.backend.gauge import GaugeSpec
from inferd.errors import InferdError, InvalidRequestError, TooManyDescriptorsError
from inferd.limits.protocol import MAX_ATTACHMENTS
from inferd.limits.server import READ_AHEAD_DESCRIPTOR_BYTES
from inferd.server.fd_passing.close import close_in_thread, close_memfds

NO_USER: Final = -1


class _ClosingFds(NamedTuple):
    """Descriptors that a thread is closing; they count until it has finished."""

    thread: Thread
    uid: int
    n_fds: int


class FdQuota:
    """Quota of clients' open descriptors, shared by all users.

    A user may hold as many as remain free: half of all if alone, a third each with another
    user. So there are always some left for another user.

    Args:
        max_fds: of all clients. It may change at any time; descriptors over a lower quota
            stay open.
    """

    def __init__(self, max_fds: int) -> None:
        self.max_fds = max_fds
        self._held: Counter[int] = Counter()
        self._closing: list[_ClosingFds] = []

    @property
    def n_held(self) -> int:
        """Descriptors at present."""
        self._release_closed()
        return self._held.total()

    def gauge(self) -> GaugeSpec:
        """Describe a gauge of the descriptors."""
        return (
            "client_fds",
            "Descriptors of clients that are open.",
            lambda: self.n_held,
        )

    def acquire(self, uid: int, n_fds: int) -> bool:
        """Count further descriptors of a user, if the quota allows all of them."""
        if n_fds > self.n_available(uid):
            return False
        self._held[uid] += n_fds
        return True

    def n_available(self, uid: int) -> int:
        """Compute how many more a user may have."""
        n_free = self.max_fds - self.n_held
        return max(0, (n_free - self._held[uid]) // 2)

    def release(self, uid: int, n_fds: int) -> None:
        """Count fewer descriptors of a user."""
        self._held[uid] -= n_fds
        if not self._held[uid]:
            del self._held[uid]

    def close_fds(self, uid: int, fds: Sequence[int]) -> None:
        """Close a user's descriptors; those whose closing may block are counted until it ends.

        Args:
            uid: the user.
            fds: not counted; owned by the quota from here on.
        """
        others = close_memfds(fds)
        if others and (thread := close_in_thread(others)) is not None:
            self._held[uid] += len(others)
            self._closing.append(_ClosingFds(thread, uid, len(others)))

    def _release_closed(self) -> None:
        """Release the descriptors that threads have closed by now."""
        if self._closing:
            closed = [each for each in self._closing if not each.thread.is_alive()]
            self._closing = [each for each in self._closing if each not in closed]
            for each in closed:
                self.release(each.uid, each.n_fds)


class LineFds:
    """The descriptors that came with one line; the owner has to close it.

    Args:
        fd_quota: counts them.
        uid: the user.
    """

    def __init__(self, fd_quota: FdQuota, uid: int = NO_USER) -> None:
        self._fd_quota = fd_quota
        self._uid = uid
        self.fds: tuple[int, ...] = ()
        """In the order of arrival; open until this is closed."""
        self.refusal: InferdError | None = None
        """The error where there were too many descriptors; none is open then."""

    @property
    def cost_bytes(self) -> int:
        """Bytes charged for these descriptors against the read-ahead limit."""
        return len(self.fds) * READ_AHEAD_DESCRIPTOR_BYTES

    def add(self, fds: tuple[int, ...], *, is_cut: bool) -> None:
        """Add descriptors, or close them all where there are too many.

        Args:
            fds: owned by this from here on.
            is_cut: whether the kernel discarded others (``MSG_CTRUNC``).
        """
        refusal = self._refusal_of(len(fds), is_cut=is_cut)
        if refusal is None and not self._fd_quota.acquire(self._uid, len(fds)):
            refusal = TooManyDescriptorsError()
        if refusal is None:
            self.fds += fds
            return
        self._fd_quota.close_fds(self._uid, fds)
        self.close()
        self.refusal = refusal

    def _refusal_of(self, n_fds: int, *, is_cut: bool) -> InferdError | None:
        if self.refusal is not None:
            return self.refusal
        if is_cut and n_fds < MAX_ATTACHMENTS:  # the process has reached its limit
            return TooManyDescriptorsError()
        if is_cut or len(self.fds) + n_fds > MAX_ATTACHMENTS:
            return InvalidRequestError(
                f"more descriptors came than the {MAX_ATTACHMENTS} that are allowed"
            )
        return None

    def close(self) -> None:
        """Close the descriptors; further calls have no effect."""
        fds, self.fds = self.fds, ()
        if fds:
            self._fd_quota.release(self._uid, len(fds))
            self._fd_quota.close_fds(self._uid, fds)


NO_FDS: Final = LineFds(FdQuota(0))
"""For lines without descriptors."""
