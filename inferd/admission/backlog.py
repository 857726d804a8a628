"""What waits for its first permit: places, tokens and bytes, each within its bound."""

from inferd.admission.budget import Budget
from inferd.admission.shares import Request

__all__ = ["Backlog"]


class Backlog:
    """The amounts of all requests that wait to begin.

    Args:
        max_requests: that wait; without any nobody does.
        max_tokens: of those that wait, as far as they are counted.
        max_bytes: of the lines that they came in.
    """

    def __init__(self, *, max_requests: int, max_tokens: int, max_bytes: int) -> None:
        self.places = Budget(max_requests)
        self.tokens = Budget(max_tokens)
        self.bytes = Budget(max_bytes)

    def resize(self, *, max_requests: int, max_tokens: int, max_bytes: int) -> None:
        """Change the bounds; those who wait already stay."""
        self.places.bound = max_requests
        self.tokens.bound = max_tokens
        self.bytes.bound = max_bytes

    def takes(self, request: Request) -> bool:
        """Let one more wait, if it may."""
        place, size = request.amount(1), request.amount(request.claim.n_bytes)
        n_users = self.places.n_users(request.claim.uid)
        fits = (
            self.places.bound > 0
            and self.places.has_room(place, n_users=n_users)
            and self.bytes.has_room(size, n_users=n_users)
        )
        if fits:
            self.places.spend(place)
            self.bytes.spend(size)
        return fits

    def takes_tokens(self, request: Request, n_tokens: int) -> bool:
        """Count the tokens of one that waits, if they fit."""
        amount = request.amount(n_tokens)
        fits = self.tokens.has_room(amount, n_users=self.places.n_users())
        if fits:
            request.n_tokens = n_tokens
            self.tokens.spend(amount)
        return fits

    def give_back(self, request: Request) -> None:
        """Free what a request took up while it waited."""
        self.places.give_back(request.amount(1))
        self.bytes.give_back(request.amount(request.claim.n_bytes))
        self.tokens.give_back(request.amount(request.n_tokens))
