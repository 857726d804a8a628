"""Which of many like events deserve a line of the log."""

from inferd.server.limits import MAX_REFUSALS_REMEMBERED, REFUSALS_LOGGED_EVERY_S


class Seldom:
    """Counts events by kind; a kind has one line in ``REFUSALS_LOGGED_EVERY_S``.

    Bounds:
        Remembers ``MAX_REFUSALS_REMEMBERED`` kinds; one that is forgotten has its next
        line at once.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], tuple[float, int]] = {}

    def count(self, *kind: object, now: float) -> int:
        """Count an event; give how many it is time to tell of, or 0.

        Args:
            kind: what makes it like others.
            now: seconds, on a clock that does not go back.
        """
        told_at, n_untold = self._kinds.get(kind, (None, 0))
        if told_at is not None and now < told_at + REFUSALS_LOGGED_EVERY_S:
            self._kinds[kind] = (told_at, n_untold + 1)
            return 0
        self._kinds.pop(kind, None)
        if len(self._kinds) >= MAX_REFUSALS_REMEMBERED:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[kind] = (now, 0)
        return n_untold + 1
