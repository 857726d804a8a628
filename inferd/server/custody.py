"""Descriptors that clients hand over: counted, open for as long as a line is dealt with."""

from collections import Counter
from collections.abc import Sequence
from threading import Thread
from typing import Final, NamedTuple

from inferd.engine.ledger import Figure
from inferd.errors import InferdError, InvalidRequestError, TooManyDescriptorsError
from inferd.limits import MAX_ATTACHMENTS
from inferd.server.closing import close_apart, close_now
from inferd.server.limits import DESCRIPTOR_BYTES

NOBODY: Final = -1


class _Late(NamedTuple):
    """Descriptors that are being closed: they count until they are."""

    thread: Thread
    uid: int
    n_fds: int


class Custody:
    """Counts the descriptors of clients that are open here.

    A user may have as many as are free then: alone half of all, one of two a third. So
    whoever comes finds some.

    Args:
        max_fds: of all clients; may change at any time, and who has some keeps them.
    """

    def __init__(self, max_fds: int) -> None:
        self.max_fds = max_fds
        self._held: Counter[int] = Counter()
        self._late: list[_Late] = []

    @property
    def n_held(self) -> int:
        """Descriptors there are."""
        self._look_after_late()
        return self._held.total()

    def figure(self) -> Figure:
        """Give what a monitoring system may want to know."""
        return (
            "client_fds",
            "Descriptors of clients that are open.",
            lambda: self.n_held,
        )

    def take(self, uid: int, n_fds: int) -> bool:
        """Count some more of a user's, if there is room for all of them."""
        if n_fds > self.room(uid):
            return False
        self._held[uid] += n_fds
        return True

    def room(self, uid: int) -> int:
        """Tell how many more a user may have."""
        n_free = self.max_fds - self.n_held
        return max(0, (n_free - self._held[uid]) // 2)

    def give_back(self, uid: int, n_fds: int) -> None:
        """Count so many less."""
        self._held[uid] -= n_fds
        if not self._held[uid]:
            del self._held[uid]

    def let_go(self, uid: int, fds: Sequence[int]) -> None:
        """Close a user's descriptors; what is not closed at once counts until it is.

        Args:
            uid: whose they are.
            fds: the custody's from here on; they do not count yet, or any more.
        """
        others = close_now(fds)
        if others and (thread := close_apart(others)) is not None:
            self._held[uid] += len(others)
            self._late.append(_Late(thread, uid, len(others)))

    def _look_after_late(self) -> None:
        """Count those no more that are closed by now."""
        if self._late:
            over = [each for each in self._late if not each.thread.is_alive()]
            self._late = [each for each in self._late if each not in over]
            for each in over:
                self.give_back(each.uid, each.n_fds)


class Parcel:
    """The descriptors that came with one line; whoever has it closes it.

    Args:
        custody: counts them.
        uid: whose they are.
    """

    def __init__(self, custody: Custody, uid: int = NOBODY) -> None:
        self._custody = custody
        self._uid = uid
        self.fds: tuple[int, ...] = ()
        """In the order they came in; open until it is closed."""
        self.refusal: InferdError | None = None
        """Why the line cannot be served, where they are too many; none is kept then."""

    @property
    def size(self) -> int:
        """Bytes of lines that they count for, where lines are read ahead."""
        return len(self.fds) * DESCRIPTOR_BYTES

    def add(self, fds: tuple[int, ...], *, is_cut: bool) -> None:
        """Put some more in, or close them all.

        Args:
            fds: which are the parcel's from here on.
            is_cut: whether the kernel dropped others that were sent with them.
        """
        refusal = self._refusal_of(len(fds), is_cut=is_cut)
        if refusal is None and not self._custody.take(self._uid, len(fds)):
            refusal = TooManyDescriptorsError()
        if refusal is None:
            self.fds += fds
            return
        self._custody.let_go(self._uid, fds)
        self.close()
        self.refusal = refusal

    def _refusal_of(self, n_fds: int, *, is_cut: bool) -> InferdError | None:
        if self.refusal is not None:
            return self.refusal
        if is_cut and n_fds < MAX_ATTACHMENTS:  # the process has no more
            return TooManyDescriptorsError()
        if is_cut or len(self.fds) + n_fds > MAX_ATTACHMENTS:
            return InvalidRequestError(
                f"more descriptors came than the {MAX_ATTACHMENTS} that are allowed"
            )
        return None

    def close(self) -> None:
        """Close them; once is enough."""
        fds, self.fds = self.fds, ()
        if fds:
            self._custody.give_back(self._uid, len(fds))
            self._custody.let_go(self._uid, fds)


NOTHING: Final = Parcel(Custody(0))
"""What comes with most lines."""
