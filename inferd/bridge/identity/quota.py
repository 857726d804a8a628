"""Tokens that each principal has used today; pure."""

from typing import Final

DAY_S: Final = 86_400


class DailyQuota:
    """Counts tokens by name, from midnight in UTC on; a restart begins anew.

    Bounds:
        Memory: an entry for each name that has a quota.
    """

    def __init__(self) -> None:
        self._day = 0
        self._used: dict[str, int] = {}

    def wait_s(self, name: str, quota: int, now_s: float) -> float:
        """Return the seconds until a name has tokens left; 0 for now.

        Args:
            name: of the principal.
            quota: its tokens a day.
            now_s: seconds since 1970.
        """
        self._begin(now_s)
        is_left = self._used.get(name, 0) < quota
        return 0.0 if is_left else (self._day + 1) * DAY_S - now_s

    def used(self, name: str, n_tokens: int, now_s: float) -> None:
        """Count tokens of an answer."""
        self._begin(now_s)
        self._used[name] = self._used.get(name, 0) + n_tokens

    def _begin(self, now_s: float) -> None:
        day = int(now_s // DAY_S)
        if day != self._day:
            self._day = day
            self._used.clear()
