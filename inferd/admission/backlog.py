"""Limits on the requests that wait for their first permit: number, tokens and bytes."""

from inferd.admission.preemption import AdmittedRequest
from inferd.admission.quota import Quota

__all__ = ["Backlog"]


class Backlog:
    """Quotas on the requests that wait to begin.

    Args:
        max_requests: waiting requests; with 0, none may wait.
        max_tokens: tokens of waiting requests, as far as they are counted.
        max_bytes: bytes of the lines of waiting requests.
    """

    def __init__(self, *, max_requests: int, max_tokens: int, max_bytes: int) -> None:
        self.requests = Quota(max_requests)
        self.tokens = Quota(max_tokens)
        self.bytes = Quota(max_bytes)

    def resize(self, *, max_requests: int, max_tokens: int, max_bytes: int) -> None:
        """Change the limits; requests that wait already stay."""
        self.requests.limit = max_requests
        self.tokens.limit = max_tokens
        self.bytes.limit = max_bytes

    def try_add(self, request: AdmittedRequest) -> bool:
        """Add a waiting request if it fits; return whether it does."""
        count, size = request.charge(1), request.charge(request.traits.n_bytes)
        n_users = self.requests.n_users(request.traits.uid)
        fits = (
            self.requests.limit > 0
            and self.requests.fits(count, n_users=n_users)
            and self.bytes.fits(size, n_users=n_users)
        )
        if fits:
            self.requests.spend(count)
            self.bytes.spend(size)
        return fits

    def try_add_tokens(self, request: AdmittedRequest, n_tokens: int) -> bool:
        """Charge the tokens of a waiting request if they fit; return whether they do."""
        charge = request.charge(n_tokens)
        fits = self.tokens.fits(charge, n_users=self.requests.n_users())
        if fits:
            request.n_tokens = n_tokens
            self.tokens.spend(charge)
        return fits

    def release(self, request: AdmittedRequest) -> None:
        """Release the quota that a request used while it waited."""
        self.requests.release(request.charge(1))
        self.bytes.release(request.charge(request.traits.n_bytes))
        self.tokens.release(request.charge(request.n_tokens))
