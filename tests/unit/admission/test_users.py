from inferd.admission.shares import Claim
from inferd.admission.users import Users

CHAT, VECTORS = Claim(uid=1), Claim(uid=1, writes=False)
LIVE = Claim(uid=1, is_live=True)


def test_the_first_that_writes_is_first_beside_vectors_and_vectors_beside_nothing():
    users = Users()
    users.come(VECTORS)
    assert users.is_first(CHAT)
    assert not users.is_first(VECTORS)
    users.come(CHAT)
    assert not users.is_first(CHAT)
    assert users.is_first(Claim(uid=2))


def test_live_ones_are_counted_by_user_while_they_are_here():
    users = Users()
    users.come(LIVE)
    users.come(CHAT)
    assert (users.n_live(1), users.n_live(2)) == (1, 0)
    users.go(LIVE)
    assert users.n_live(1) == 0


def test_of_those_who_have_left_nothing_is_remembered():
    users = Users()
    for claim in (CHAT, VECTORS, LIVE):
        users.come(claim)
    for claim in (LIVE, CHAT, VECTORS):
        users.go(claim)
    assert not any(vars(users).values())
