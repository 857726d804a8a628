import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from inferd.backend import Reuse
from inferd.server.activity import Activity
from inferd.server.counts import UserCounts, has_run
from inferd.server.identity import Identity
from inferd.server.limits import MAX_COUNTED_USERS
from inferd.server.peer import Peer
from tests.fakes.output import Spoken

ANNA, BERT = (Peer(pid=n, uid=70_000 + n, gid=1) for n in (1, 2))


def asked(peer: Peer, n_tokens: int) -> Activity:
    activity = Activity(peer, "infer.sock", "r", trio.current_time(), backend="chat")
    activity.input_tokens = 5
    activity.output = Spoken(n_tokens, reuse=Reuse(cached_tokens=2))
    activity.outcome = "end"
    return activity


def told(counts: UserCounts, owner: int) -> dict[str, float]:
    """Give what is counted of a user, without when that began."""
    return {
        ".".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(counts.text(owner))
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


async def test_a_user_is_told_of_its_own_requests_alone():
    counts = UserCounts()
    for peer, n_tokens in ((ANNA, 7), (BERT, 1000), (ANNA, 3)):
        counts.count(asked(peer, n_tokens))
    assert told(counts, ANNA.owner) == {
        "inferd_requests_total.end.infer.sock": 2,
        "inferd_tokens_total.chat.input": 10,
        "inferd_tokens_total.chat.output": 10,
        "inferd_tokens_total.chat.cached": 4,
        "inferd_cached_prompts_total.chat.hit": 2,
    }
    assert told(counts, 70_009) == {}


async def test_what_others_do_changes_no_byte_of_it():
    counts = UserCounts()
    counts.count(asked(ANNA, 7))
    before = counts.text(ANNA.owner)
    for n in range(MAX_COUNTED_USERS - 1):
        counts.count(asked(Peer(1, 80_000 + n, 1), 9))
    assert counts.text(ANNA.owner) == before


async def test_who_asked_nothing_for_the_longest_time_is_forgotten_first():
    counts = UserCounts()
    others = [Peer(1, 80_000 + n, 1) for n in range(MAX_COUNTED_USERS)]
    for peer in (ANNA, *others[:-1], ANNA, others[-1]):
        counts.count(asked(peer, 1))
    assert told(counts, others[0].owner) == {}
    assert told(counts, ANNA.owner)["inferd_requests_total.end.infer.sock"] == 2
    assert len(counts._counts) == MAX_COUNTED_USERS


@pytest.mark.parametrize(
    "peer",
    [
        Peer(1, 65_534, 1, stranger=4),
        Peer(1, 100_001, 1, identity=Identity(2**32 + 100_000, -(2**41))),
    ],
)
async def test_who_is_counted_together_with_others_has_no_numbers(peer):
    counts = UserCounts()
    counts.count(asked(peer, 7))
    assert told(counts, peer.owner) == {}
    assert not counts._counts


def test_what_has_no_cache_did_not_look_into_it():
    assert has_run(Reuse(miss="no_prefix"))
    assert has_run(Reuse(cached_tokens=1))
    assert not has_run(Reuse())
