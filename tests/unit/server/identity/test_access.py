from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from inferd.config.settings import AccessRule, AccessSettings, ConfigError, GatewayRule
from inferd.server.identity.access import (
    Access,
    Rule,
    is_operator,
    load_access,
)
from inferd.server.identity.peer import Peer
from inferd.surfaces import inference_surfaces
from tests.fakes.streams import BY_SOCKET

OWNER = 70_000
ANNA = Peer(pid=1, uid=70_001, gid=80_001)
BERT = Peer(pid=2, uid=70_002, gid=80_002)
ROOT = Peer(pid=3, uid=0, gid=0)
DAEMON = Peer(pid=4, uid=OWNER, gid=80_000)
INFERENCE = [each.socket for each in inference_surfaces()]


@pytest.fixture(autouse=True)
def _who_runs_the_daemon(monkeypatch):
    fake = SimpleNamespace(getuid=lambda: OWNER)
    monkeypatch.setattr("inferd.server.identity.access.os", fake)


def may(access: Access, leaf: str, peer: Peer, *groups: int) -> bool:
    return access.allows(leaf, peer, lambda: frozenset(groups))


def test_operators_are_root_and_the_daemon_s_own_user():
    assert [is_operator(each) for each in (ROOT, DAEMON, ANNA)] == [True, True, False]


@pytest.mark.parametrize("uid", [0, OWNER])
def test_a_peer_with_the_overflow_uid_is_no_operator(uid):
    assert not is_operator(Peer(pid=5, uid=uid, gid=0, overflow_id=1))


@pytest.mark.parametrize("leaf", INFERENCE)
def test_without_rules_everybody_may_use_inference_sockets(leaf):
    assert may(load_access(AccessSettings()), leaf, ANNA)


@pytest.mark.parametrize("access", [Access(), load_access(AccessSettings())])
def test_without_rules_only_operators_may_use_the_admin_socket(access):
    peers = (ROOT, DAEMON, ANNA)
    assert [may(access, "admin.sock", each) for each in peers] == [True, True, False]


@pytest.mark.parametrize("leaf", INFERENCE)
def test_a_rule_for_one_socket_holds_for_the_others_that_have_none(leaf):
    rule = AccessRule(uids=(ANNA.uid,))
    access = load_access(AccessSettings(infer=rule))
    assert (may(access, leaf, ANNA), may(access, leaf, BERT)) == (True, False)


def test_each_socket_may_have_a_rule_of_its_own():
    anna, bert = AccessRule(uids=(ANNA.uid,)), AccessRule(uids=(BERT.uid,))
    access = load_access(AccessSettings(infer=anna, embed=bert, admin=bert))
    allowed = {
        (leaf, each.uid)
        for leaf in BY_SOCKET
        for each in (ANNA, BERT)
        if may(access, leaf, each)
    }
    annas = {(leaf, ANNA.uid) for leaf in INFERENCE if leaf != "infer.embed.sock"}
    assert allowed == annas | {
        ("infer.embed.sock", BERT.uid),
        ("admin.sock", BERT.uid),
    }


@pytest.mark.parametrize("leaf", BY_SOCKET)
def test_an_empty_rule_lets_operators_in_alone(leaf):
    access = Access({leaf: Rule()})
    peers = (ROOT, DAEMON, ANNA)
    assert [may(access, leaf, each) for each in peers] == [True, True, False]


@pytest.mark.parametrize(
    ("gids", "groups", "is_let_in"),
    [
        ((ANNA.gid,), (), True),
        ((90_000,), (), False),
        ((90_000,), (90_000,), True),
        ((90_000,), (90_001, ANNA.gid), False),
        ((), (90_000,), False),
    ],
)
def test_a_group_is_the_main_one_or_another(gids, groups, is_let_in):
    access = load_access(AccessSettings(infer=AccessRule(gids=gids)))
    assert may(access, "infer.sock", ANNA, *groups) is is_let_in


def test_groups_are_asked_for_where_they_matter_alone():
    def ask():
        raise AssertionError

    rule = Rule(uids=frozenset([ANNA.uid]), gids=frozenset([BERT.gid]))
    assert rule.allows(ANNA, ask)
    assert rule.allows(BERT, ask)
    assert not Rule(uids=rule.uids).allows(BERT, ask)


def test_names_are_looked_up():
    rule = AccessRule(uids=("root", 5), gids=("root", 6))
    access = load_access(AccessSettings(infer=rule))
    assert access.rules["infer.sock"] == Rule(frozenset([0, 5]), frozenset([0, 6]))


@pytest.mark.parametrize("kind", ["uids", "gids"])
@pytest.mark.parametrize("name", ["", "no-such-name", "\udcff", "\0", "70001"])
def test_an_unknown_name_is_refused_with_its_key(kind, name):
    settings = AccessSettings(v2=AccessRule(**{kind: (name,)}))
    with pytest.raises(ConfigError) as caught:
        load_access(settings)
    assert str(caught.value).startswith(f"access.v2.{kind} = {name!r}: expected")


NUMBERS = st.frozensets(st.integers(1, 5), max_size=3)


@given(uids=NUMBERS, gids=NUMBERS, groups=NUMBERS, uid=st.integers(1, 5))
def test_a_peer_is_let_in_if_and_only_if_it_or_a_group_of_its_is_named(
    uids, gids, groups, uid
):
    peer = Peer(pid=1, uid=uid, gid=6)
    allowed = Rule(uids, gids).allows(peer, lambda: groups)
    assert allowed == (uid in uids or bool(gids & groups))


def test_gateways_are_named_by_number_or_name_and_there_are_none_by_default():
    assert load_access(AccessSettings()).gateways == frozenset()
    rule = GatewayRule(uids=("root", 5))
    assert load_access(AccessSettings(gateways=rule)).gateways == {0, 5}
    unknown = AccessSettings(gateways=GatewayRule(uids=("no-such-name",)))
    with pytest.raises(ConfigError, match=r"access\.gateways\.uids = 'no-such-name'"):
        load_access(unknown)
