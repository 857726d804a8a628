import pytest
from hypothesis import given, settings, strategies as st

from inferd.backend.caller import sharer_of
from inferd.errors import InvalidRequestError, PrincipalDeniedError
from inferd.limits.server import MAX_PRINCIPALS, PRINCIPAL_IDLE_S
from inferd.server.identity.gateways import Gateways
from inferd.server.identity.peer import Peer
from tests.cases import each_case

GATEWAY, OTHER_GATEWAY, USER = (Peer(pid=1, uid=uid, gid=1) for uid in (5, 6, 7))


def known() -> Gateways:
    gateways = Gateways()
    gateways.set_uids({GATEWAY.uid, OTHER_GATEWAY.uid})
    return gateways


def owner(gateways: Gateways, peer: Peer, name: str | None, now: float = 0.0) -> int:
    principal, denial = gateways.identify(peer, name, now=now)
    assert denial is None
    return peer.owner if principal is None else principal.owner


def test_each_principal_of_each_gateway_owns_what_it_asks_and_no_more():
    gateways = known()
    names = [None, "ann", "bob"]
    owners = {
        (peer, name): owner(gateways, peer, name)
        for peer in (GATEWAY, OTHER_GATEWAY)
        for name in names
    }
    owners[USER, None] = owner(gateways, USER, None)
    assert len({*owners.values()}) == len(owners)
    for (peer, name), number in owners.items():
        assert owner(gateways, peer, name) == number
        own = owners[peer, None]
        assert sharer_of(number) == own == sharer_of(own)


@each_case("name", ["ann", "", "x" * 1000, "\n"])
def test_who_is_no_gateway_may_name_nobody(name):
    principal, denial = known().identify(USER, name, now=0.0)
    assert principal is None
    assert isinstance(denial, PrincipalDeniedError)
    assert not denial.closes_connection


def test_a_user_whom_the_kernel_does_not_know_is_no_gateway():
    unmapped = Peer(pid=1, uid=GATEWAY.uid, gid=1, overflow_id=1)
    _, denial = known().identify(unmapped, "ann", now=0.0)
    assert isinstance(denial, PrincipalDeniedError)


@pytest.mark.parametrize("name", ["ann", None])
def test_who_is_a_gateway_can_change_and_the_owners_of_others_stay(name):
    gateways = known()
    before = owner(gateways, GATEWAY, name)
    gateways.set_uids({GATEWAY.uid, USER.uid})
    assert owner(gateways, GATEWAY, name) == before
    assert owner(gateways, USER, name) != before
    _, denial = gateways.identify(OTHER_GATEWAY, "ann", now=0.0)
    assert isinstance(denial, PrincipalDeniedError)
    gateways.set_uids(())
    gateways.set_uids({GATEWAY.uid})
    assert owner(gateways, GATEWAY, name) != before


@each_case("name", ["x", "x" * 128, "Ánn O'Hara <ann@example.org>", "名前"])
def test_a_name_is_printable_and_has_at_most_128_characters(name):
    assert owner(known(), GATEWAY, name) != owner(known(), GATEWAY, None)


@each_case("name", ["", "x" * 129, "a\nb", "a\x1b[2Jb", "a\u202eb", "\x00"])
def test_any_other_name_is_refused_and_remembered_by_nobody(name):
    gateways = known()
    principal, denial = gateways.identify(GATEWAY, name, now=0.0)
    assert isinstance(denial, InvalidRequestError)
    assert principal is not None
    assert principal.name == ""
    assert gateways.gauge()[2]() == 0


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, PRINCIPAL_IDLE_S)), max_size=20)
)
def test_a_principal_keeps_its_owner_while_it_asks_once_an_hour_and_no_longer(asks):
    gateways, now = known(), 0.0
    last: dict[int, tuple[int, float]] = {}
    given = set[int]()
    for name, after_s in asks:
        now += after_s
        number = owner(gateways, GATEWAY, str(name), now)
        before, asked_at = last.get(name, (None, now))
        is_remembered = before is not None and now - asked_at < PRINCIPAL_IDLE_S
        assert number == before if is_remembered else number not in given
        given.add(number)
        last[name] = (number, now)


def test_a_bounded_number_is_remembered_and_nobody_inherits_from_a_forgotten_one():
    gateways = known()
    n_names = MAX_PRINCIPALS + 10
    owners = [owner(gateways, GATEWAY, str(n)) for n in range(n_names)]
    assert gateways.gauge()[2]() == MAX_PRINCIPALS
    assert owner(gateways, GATEWAY, str(n_names - 1)) == owners[-1]
    assert owner(gateways, GATEWAY, "0") not in owners
    assert owner(gateways, OTHER_GATEWAY, "0") not in owners
