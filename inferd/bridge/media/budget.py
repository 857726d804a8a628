"""Bytes of decoded media that are held."""

from collections import Counter

from inferd.bridge.translation.failures import BridgeError, Reason


class DecodedBudget:
    """The bytes that are held, half of them at most for one principal.

    Args:
        max_bytes: of all of them.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: Counter[str] = Counter()

    @property
    def n_held(self) -> int:
        """Bytes that are held."""
        return self._held.total()

    def take(self, principal: str, n_bytes: int) -> None:
        """Take bytes.

        Raises:
            BridgeError: too many are held already.
        """
        own = self._held[principal] + n_bytes
        if own > self._max_bytes // 2 or self.n_held + n_bytes > self._max_bytes:
            raise BridgeError(
                Reason.QUEUE_FULL,
                "too many large pictures and recordings at once",
                retry_after_s=1.0,
            )
        self._held[principal] = own

    def give_back(self, principal: str, n_bytes: int) -> None:
        """Give bytes back."""
        self._held[principal] -= n_bytes
        self._held += Counter()  # drops principals that hold none
