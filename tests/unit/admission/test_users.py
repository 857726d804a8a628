import itertools

from inferd.admission.preemption import RequestTraits
from inferd.admission.shares import NOT_FIRST
from inferd.admission.users import UserRequests
from inferd.backend.caller import Caller

CHAT, VECTORS = RequestTraits(Caller(1)), RequestTraits(Caller(1), writes=False)
LIVE = RequestTraits(Caller(1), is_live=True)


def of_principal(name: str, *, is_live: bool = False) -> RequestTraits:
    return RequestTraits(Caller(5, name), is_live=is_live)


def test_the_first_that_writes_is_first_beside_vectors_and_vectors_beside_nothing():
    users = UserRequests()
    users.add(VECTORS)
    assert users.first(CHAT) == (True, None)
    assert users.first(VECTORS) == NOT_FIRST
    users.add(CHAT)
    assert users.first(CHAT) == NOT_FIRST
    assert users.first(RequestTraits(Caller(2))) == (True, None)


def test_the_first_of_a_further_principal_is_first_among_its_users_alone():
    users = UserRequests()
    users.add(of_principal("ann"))
    assert users.first(of_principal("ann")) == NOT_FIRST
    assert users.first(of_principal("bob")) == (True, 5)


def test_live_ones_are_counted_by_caller_while_they_are_here():
    users = UserRequests()
    users.add(LIVE)
    users.add(CHAT)
    assert not users.may_go_live(LIVE, max_live=1, max_weight=1)
    assert users.may_go_live(RequestTraits(Caller(2)), max_live=1, max_weight=1)
    users.remove(LIVE)
    assert users.may_go_live(LIVE, max_live=1, max_weight=1)


def test_names_multiply_live_ones_by_no_more_than_the_weight():
    users = UserRequests()
    names = itertools.count()
    while users.may_go_live(of_principal(str(n := next(names))), 2, max_weight=3):
        users.add(of_principal(str(n), is_live=True))
    assert n == 6
    assert users.may_go_live(RequestTraits(Caller(1)), 2, max_weight=3)


def test_of_those_who_have_left_nothing_is_remembered():
    users = UserRequests()
    claims = (CHAT, VECTORS, LIVE, of_principal("ann"), of_principal("bob"))
    for claim in claims:
        users.add(claim)
    for claim in reversed(claims):
        users.remove(claim)
    assert vars(users) == vars(UserRequests())
