import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from inferd import surfaces
from inferd.backend.interface import CacheReuse
from inferd.limits.server import MAX_COUNTED_USERS
from inferd.server.identity.mapping import Identity
from inferd.server.identity.peer import Peer
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.request_counts import UserCounts, used_prefix_cache
from tests.fakes.output import Spoken

ANNA, BERT = (Peer(pid=n, uid=70_000 + n, gid=1) for n in (1, 2))


def asked(peer: Peer, n_tokens: int) -> RequestContext:
    context = RequestContext(
        peer, surfaces.INFER, "r", trio.current_time(), backend="chat"
    )
    context.input_tokens = 5
    context.output = Spoken(n_tokens, reuse=CacheReuse(cached_tokens=2))
    context.outcome = "end"
    return context


def told(counts: UserCounts, owner: int) -> dict[str, float]:
    """Give what is counted of a user, without when that began."""
    return {
        ".".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(counts.text(owner))
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


async def test_a_user_gets_counts_of_its_own_requests_only():
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


async def test_other_users_requests_change_no_byte_of_it():
    counts = UserCounts()
    counts.count(asked(ANNA, 7))
    before = counts.text(ANNA.owner)
    for n in range(MAX_COUNTED_USERS - 1):
        counts.count(asked(Peer(1, 80_000 + n, 1), 9))
    assert counts.text(ANNA.owner) == before


async def test_the_user_idle_for_the_longest_time_is_forgotten_first():
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
        Peer(1, 65_534, 1, overflow_id=4),
        Peer(1, 100_001, 1, identity=Identity(2**32 + 100_000, -(2**41))),
    ],
)
async def test_users_who_share_an_owner_number_have_no_counts(peer):
    counts = UserCounts()
    counts.count(asked(peer, 7))
    assert told(counts, peer.owner) == {}
    assert not counts._counts


def test_without_a_prefix_cache_no_lookup_is_counted():
    assert used_prefix_cache(CacheReuse(miss="no_prefix"))
    assert used_prefix_cache(CacheReuse(cached_tokens=1))
    assert not used_prefix_cache(CacheReuse())
