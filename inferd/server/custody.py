"""Descriptors that clients hand over: counted, open for as long as a line is dealt with."""

import os
from collections import Counter
from typing import Final

from inferd.engine.ledger import Figure
from inferd.errors import InferdError, InvalidRequestError, TooManyDescriptorsError
from inferd.limits import MAX_ATTACHMENTS
from inferd.server.limits import DESCRIPTOR_BYTES

NOBODY: Final = -1


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

    @property
    def n_held(self) -> int:
        """Descriptors there are."""
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
        n_free = self.max_fds - self.n_held - n_fds
        if self._held[uid] + n_fds > n_free:
            return False
        self._held[uid] += n_fds
        return True

    def give_back(self, uid: int, n_fds: int) -> None:
        """Count so many less."""
        self._held[uid] -= n_fds
        if not self._held[uid]:
            del self._held[uid]


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
        for fd in fds:
            os.close(fd)
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
        for fd in fds:
            os.close(fd)
        if fds:
            self._custody.give_back(self._uid, len(fds))


NOTHING: Final = Parcel(Custody(0))
"""What comes with most lines."""
