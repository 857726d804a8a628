import pytest

from inferd.admission.backlog import Backlog
from inferd.admission.ring import Place
from inferd.admission.shares import Claim, Request


def request(ticket: int = 0, *, uid: int = 1, n_bytes: int = 0) -> Request:
    claim = Claim(uid=uid, n_bytes=n_bytes)
    return Request(claim, Place(0, ticket, ticket), is_first=False)


def backlog(**bounds: int) -> Backlog:
    return Backlog(**{"max_requests": 2, "max_tokens": 10, "max_bytes": 10} | bounds)


@pytest.mark.parametrize("bounds", [{"max_requests": 0}, {"max_requests": 1}])
def test_one_over_the_places_is_not_taken_and_counts_for_nothing(bounds):
    there = backlog(**bounds)
    while there.takes(request()):
        assert there.places.spent <= bounds["max_requests"]
    assert there.places.spent == bounds["max_requests"]


def test_one_over_the_bytes_or_the_tokens_is_not_taken():
    there = backlog()
    first, second = request(n_bytes=6), request(1, n_bytes=4)
    assert there.takes(first)
    assert not there.takes(request(2, n_bytes=5))
    assert there.takes(second)
    assert there.takes_tokens(first, 7)
    assert not there.takes_tokens(second, 4)
    assert (there.places.spent, there.bytes.spent, there.tokens.spent) == (2, 10, 7)


def test_what_is_given_back_leaves_nothing_and_other_bounds_hold_from_then_on():
    there, first = backlog(), request(n_bytes=6)
    assert there.takes(first)
    assert there.takes_tokens(first, 7)
    there.give_back(first)
    assert vars(there.places) == vars(backlog().places)
    there.resize(max_requests=0, max_tokens=1, max_bytes=1)
    assert not there.takes(first)
