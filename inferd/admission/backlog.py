"""Limits on the requests that wait for their first permit: number, tokens and bytes."""

from inferd.admission.preemption import AdmittedRequest
from inferd.admission.quota import Quota
from inferd.admission.shares import Shares

__all__ = ["Backlog"]


class Backlog:
    """Quotas on the requests that wait to begin.

    Args:
        max_requests: waiting requests; with 0, none may wait.
        max_tokens: tokens of waiting requests, as far as they are counted.
        max_bytes: bytes of the lines of waiting requests.
        max_weight: users that a gateway counts as at most; may change at any time.
    """

    def __init__(
        self, *, max_requests: int, max_tokens: int, max_bytes: int, max_weight: int
    ) -> None:
        self._shares = Shares(max_weight=max_weight)  # of those who wait
        self.requests = Quota(max_requests)
        self.tokens = Quota(max_tokens)
        self.bytes = Quota(max_bytes)

    @property
    def max_weight(self) -> int:
        """The most parts of a user."""
        return self._shares.max_weight

    @max_weight.setter
    def max_weight(self, max_weight: int) -> None:
        self._shares.max_weight = max_weight

    def resize(self, *, max_requests: int, max_tokens: int, max_bytes: int) -> None:
        """Change the limits; requests that wait already stay."""
        self.requests.limit = max_requests
        self.tokens.limit = max_tokens
        self.bytes.limit = max_bytes

    def try_add(self, request: AdmittedRequest) -> bool:
        """Add a waiting request if it fits; return whether it does."""
        count, size = request.charge(1), request.charge(request.traits.n_bytes)
        self._shares.add(request.traits.caller)
        fits = (
            self.requests.limit > 0
            and self.requests.fits(count, self._shares)
            and self.bytes.fits(size, self._shares)
        )
        if fits:
            self.requests.spend(count)
            self.bytes.spend(size)
        else:
            self._shares.remove(request.traits.caller)
        return fits

    def try_add_tokens(self, request: AdmittedRequest, n_tokens: int) -> bool:
        """Charge the tokens of a waiting request if they fit; return whether they do."""
        charge = request.charge(n_tokens)
        fits = self.tokens.fits(charge, self._shares)
        if fits:
            request.n_tokens = n_tokens
            self.tokens.spend(charge)
        return fits

    def release(self, request: AdmittedRequest) -> None:
        """Release the quota that a request used while it waited."""
        self._shares.remove(request.traits.caller)
        self.requests.release(request.charge(1))
        self.bytes.release(request.charge(request.traits.n_bytes))
        self.tokens.release(request.charge(request.n_tokens))
