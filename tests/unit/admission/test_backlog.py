import pytest

from inferd.admission.backlog import Backlog
from inferd.admission.fair_queue import QueueEntry
from inferd.admission.preemption import AdmittedRequest, RequestTraits
from inferd.backend.caller import Caller


def request(ticket: int = 0, *, uid: int = 1, n_bytes: int = 0) -> AdmittedRequest:
    claim = RequestTraits(Caller(uid), n_bytes=n_bytes)
    return AdmittedRequest(claim, QueueEntry(0, ticket, ticket))


def backlog(**bounds: int) -> Backlog:
    defaults = {"max_requests": 2, "max_tokens": 10, "max_bytes": 10, "max_weight": 1}
    return Backlog(**defaults | bounds)


@pytest.mark.parametrize("bounds", [{"max_requests": 0}, {"max_requests": 1}])
def test_one_over_the_places_is_not_taken_and_counts_for_nothing(bounds):
    there = backlog(**bounds)
    while there.try_add(request()):
        assert there.requests.spent <= bounds["max_requests"]
    assert there.requests.spent == bounds["max_requests"]


def test_one_over_the_bytes_or_the_tokens_is_not_taken():
    there = backlog()
    first, second = request(n_bytes=6), request(1, n_bytes=4)
    assert there.try_add(first)
    assert not there.try_add(request(2, n_bytes=5))
    assert there.try_add(second)
    assert there.try_add_tokens(first, 7)
    assert not there.try_add_tokens(second, 4)
    assert (there.requests.spent, there.bytes.spent, there.tokens.spent) == (2, 10, 7)


def test_what_is_given_back_leaves_nothing_and_other_bounds_hold_from_then_on():
    there, first = backlog(), request(n_bytes=6)
    assert there.try_add(first)
    assert there.try_add_tokens(first, 7)
    there.release(first)
    assert vars(there.requests) == vars(backlog().requests)
    there.resize(max_requests=0, max_tokens=1, max_bytes=1)
    assert not there.try_add(first)
