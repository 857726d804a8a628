from inferd.admission.preemption import RequestTraits
from inferd.admission.users import UserRequests

CHAT, VECTORS = RequestTraits(uid=1), RequestTraits(uid=1, writes=False)
LIVE = RequestTraits(uid=1, is_live=True)


def test_the_first_that_writes_is_first_beside_vectors_and_vectors_beside_nothing():
    users = UserRequests()
    users.add(VECTORS)
    assert users.is_first(CHAT)
    assert not users.is_first(VECTORS)
    users.add(CHAT)
    assert not users.is_first(CHAT)
    assert users.is_first(RequestTraits(uid=2))


def test_live_ones_are_counted_by_user_while_they_are_here():
    users = UserRequests()
    users.add(LIVE)
    users.add(CHAT)
    assert (users.n_live(1), users.n_live(2)) == (1, 0)
    users.remove(LIVE)
    assert users.n_live(1) == 0


def test_of_those_who_have_left_nothing_is_remembered():
    users = UserRequests()
    for claim in (CHAT, VECTORS, LIVE):
        users.add(claim)
    for claim in (LIVE, CHAT, VECTORS):
        users.remove(claim)
    assert not any(vars(users).values())
