import numpy as np
from hypothesis import given, settings, strategies as st

from inferd.backend.caller import owner_of
from inferd.worker.llama.generate.prefix_cache import (
    CachedPrefix,
    PrefixCache,
    common_length,
    position_of,
)

ROOM = 1000


def tokens(*ids):
    return np.array(ids, np.int32)


def kept(*ids, owner=1, slot=None, n_bytes=0, first=0):
    saved = np.zeros(n_bytes, np.uint8) if n_bytes else None
    return CachedPrefix(
        owner=owner, tokens=tokens(*ids), first=first, slot=slot, saved=saved
    )


def prefixes(*entries, window=0):
    found = PrefixCache(window=window, max_saved_bytes=ROOM)
    for each in entries:
        found.add(each)
    return found


def save(prefixes, entry, n_bytes):
    """Move a sequence to host memory if there is room, as ``Slots`` does."""
    if prefixes.make_room(entry.owner, n_bytes):
        prefixes.save(entry, np.zeros(n_bytes, np.uint8))
    else:
        prefixes.remove(entry)


IDS = st.lists(st.integers(0, 2), max_size=8)


@given(IDS, IDS)
def test_the_common_length_is_that_of_the_common_prefix(one, other):
    n = common_length(tokens(*one), tokens(*other))
    assert one[:n] == other[:n]
    assert n == min(len(one), len(other)) or one[n] != other[n]


# --- finding ----------------------------------------------------------------------------


def test_the_longest_beginning_is_found():
    short, long = kept(1, 2, slot=0), kept(1, 2, 3, 9, slot=1)
    found = prefixes(short, long).find(1, tokens(1, 2, 3, 4))
    assert found == (long, 3)


def test_no_user_finds_a_prefix_of_another():
    mine = prefixes(kept(1, 2, 3, owner=1, slot=0))
    assert mine.find(2, tokens(1, 2, 3)) == (None, 0)


def test_of_equals_one_in_the_cache_is_found():
    near = kept(1, 2, 5, slot=0)
    far = kept(1, 2, 6, n_bytes=10)
    assert prefixes(far, near).find(1, tokens(1, 2, 3)) == (near, 2)
    assert prefixes(near, far).find(1, tokens(1, 2, 3)) == (near, 2)


def test_of_equals_in_the_cache_the_shortest_is_found():
    long, short = kept(1, 2, 5, 6, slot=0), kept(1, 2, 7, slot=1)
    assert prefixes(long, short).find(1, tokens(1, 2, 3)) == (short, 2)


def test_a_common_prefix_below_the_minimum_is_not_found():
    mine = PrefixCache(window=0, max_saved_bytes=ROOM, n_tokens_min=3)
    mine.add(entry := kept(1, 2, 3, 4, slot=0))
    assert mine.find(1, tokens(1, 2, 9)) == (None, 0)
    assert mine.find(1, tokens(1, 2, 3)) == (entry, 3)


def test_running_sequences_are_found_too():
    running = kept(1, 2, 3, slot=4)
    assert prefixes().find(1, tokens(1, 2), [running]) == (running, 2)


def test_what_has_lost_the_cells_before_its_window_is_found_to_be_of_no_use():
    lost = kept(*range(10), slot=0, first=6)
    all_kept = prefixes(lost, window=4)
    assert all_kept.find(1, tokens(0, 1, 2, 99)) == (lost, 0)
    assert all_kept.find(1, tokens(*range(10), 99)) == (lost, 10)  # nothing is cut off
    assert (
        prefixes(kept(*range(10), slot=0, first=4), window=4).find(
            1, tokens(*range(8), 99)
        )[1]
        == 8
    )


def test_a_truncatable_prefix_is_preferred_to_a_longer_one():
    state = kept(*range(10), slot=0, first=9)
    other = kept(0, 1, slot=1)
    assert prefixes(state, other).find(1, tokens(0, 1, 2, 3, 99)) == (other, 2)


def test_a_recurrent_state_is_not_truncated_by_even_one_token():
    state = kept(*range(10), slot=0, first=9)
    assert prefixes(state).find(1, tokens(*range(9), 99)) == (state, 0)
    assert prefixes(state).find(1, tokens(*range(9))) == (state, 0)
    assert prefixes(state).find(1, tokens(*range(10), 99)) == (state, 10)


# --- keeping ----------------------------------------------------------------------------


def test_the_most_recently_used_is_evicted_last():
    first, second = kept(1, slot=0), kept(2, slot=1)
    all_kept = prefixes(first, second)
    assert all_kept.idle == [first, second]
    all_kept.refresh(first)
    assert all_kept.idle == [second, first]


def test_a_saved_prefix_of_a_cached_sequence_is_redundant():
    part, other = kept(1, 2, n_bytes=10), kept(1, 3, n_bytes=10)
    mine = prefixes(part, other, kept(1, 2, owner=2, n_bytes=10))
    mine.add(kept(1, 2, 3, slot=0))
    assert mine.saved_bytes == 20
    assert mine.find(1, tokens(1, 3))[0] is other


def test_a_prefix_that_cannot_be_truncated_to_is_not_redundant():
    mine = prefixes(kept(1, 2, n_bytes=10))
    mine.add(kept(1, 2, 3, 4, slot=0, first=3))
    assert mine.saved_bytes == 10


def test_a_saved_sequence_is_no_longer_idle():
    only = kept(1, 2, slot=0)
    mine = prefixes(only)
    save(mine, only, 100)
    assert (mine.idle, only.slot, mine.saved_bytes) == ([], None, 100)
    assert mine.find(1, tokens(1, 2)) == (only, 2)


def test_the_cheapest_sequence_per_byte_is_evicted_first():
    cheap, dear = kept(1, slot=0), kept(*range(2, 60), slot=1)
    mine = prefixes(cheap, dear, kept(99, slot=2))
    for each in (dear, cheap):
        save(mine, each, 400)
    save(mine, mine.idle[0], 400)
    assert mine.find(1, tokens(1))[0] is None
    assert mine.find(1, tokens(2))[0] is dear


def test_an_unused_sequence_is_evicted_in_the_end():
    dear = kept(*range(100), slot=0)
    mine = prefixes(dear)
    save(mine, dear, 400)
    for n in range(200):
        mine.add(cheap := kept(1000 + n, slot=1))
        save(mine, cheap, 400)
    assert mine.find(1, tokens(0))[0] is None


@settings(max_examples=50)
@given(
    st.lists(st.tuples(IDS, st.integers(0, 2), st.integers(1, 2 * ROOM)), max_size=12)
)
def test_host_memory_is_never_over_its_bound_and_nothing_found_is_another_users(moves):
    mine = prefixes()
    for ids, owner, n_bytes in moves:
        mine.add(entry := kept(*ids, owner=owner, slot=0))
        save(mine, entry, n_bytes)
        assert mine.saved_bytes <= ROOM
        found, n = mine.find(owner, tokens(*ids))
        assert found is None or (
            found.owner == owner and list(found.tokens[:n]) == ids[:n]
        )


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.one_of(st.just(1), st.integers(-30, -2)), st.integers(1, ROOM)),
        max_size=30,
    )
)
def test_nobody_loses_an_even_share_to_others_or_to_those_who_share_nothing(flood):
    mine = prefixes()
    for n in range(3):  # the least worth of all: one token, and a third of its share
        mine.add(entry := kept(n, owner=0, slot=0))
        save(mine, entry, ROOM // 3 // 3)
    for number, (owner, n_bytes) in enumerate(flood):
        mine.add(entry := kept(*range(number, number + 50), owner=owner, slot=0))
        save(mine, entry, n_bytes)
    assert all(mine.find(0, tokens(n))[1] for n in range(3))


NAMES = st.integers(1, 40).map(lambda name: owner_of(0, name))


@settings(max_examples=50)
@given(st.lists(st.tuples(NAMES, st.integers(1, ROOM)), max_size=30))
def test_names_of_a_gateway_have_one_share_and_equal_parts_of_it(flood):
    mine, first = prefixes(), owner_of(0, 99)
    for n in range(3):  # a third of an even share, of a user and of each of 41 names
        for token, owner, n_bytes in ((n, 0, ROOM // 6), (9 + n, first, ROOM // 252)):
            mine.add(entry := kept(token, owner=owner, slot=0))
            save(mine, entry, n_bytes)
    for number, (owner, n_bytes) in enumerate(flood, 20):
        mine.add(entry := kept(*range(number, number + 50), owner=owner, slot=0))
        save(mine, entry, n_bytes)
    assert all(mine.find(0, tokens(n))[1] for n in range(3))
    assert all(mine.find(first, tokens(9 + n))[1] for n in range(3))


def test_behind_a_grid_there_are_fewer_positions_than_tokens():
    skips = ((5, 2), (9, 3))
    assert [position_of(n, skips) for n in (0, 4, 5, 8, 9)] == [0, 4, 3, 6, 4]
    assert CachedPrefix(0, tokens(*range(12)), position_skips=skips).position(12) == 7


def test_a_window_counts_positions():
    seen = CachedPrefix(0, tokens(*range(20)), first=8, position_skips=((10, 6),))
    window = prefixes(window=4)
    assert not window.can_truncate(seen, 17)  # at 11, seeing from 7 on
    assert window.can_truncate(seen, 18)
