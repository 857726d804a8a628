from hypothesis import given, strategies as st

from inferd.backend.job import NO_UID
from inferd.server.identity.mapping import (
    FIRST_SUBORDINATE,
    N_IDS,
    Identities,
    Identity,
    IdRange,
    IdRanges,
    find_overlap,
)

ALICE, BOB = 1001, 1002
ALICES = IdRange(100_000, 65_536, ALICE)
BOBS = IdRange(165_536, 65_536, BOB)
CONTAINERS = IdRange(1_000_000, 10 * 65_536)

numbers = st.integers(0, 60)
ranges = st.lists(
    st.builds(
        IdRange, numbers, st.integers(0, 30), st.sampled_from([None, ALICE, BOB, 7])
    ),
    max_size=8,
)


def identities(*uids: IdRange, **more) -> Identities:
    return Identities(uids=IdRanges(uids), **more)


# --- ranges -----------------------------------------------------------------------------


@given(ranges, numbers)
def test_a_number_is_its_only_claimants_and_otherwise_nobodys(given_ranges, number):
    having = {each for each in given_ranges if each.first <= number < each.end}
    claimants = {each if each.person is None else each.person for each in having}
    found = IdRanges(given_ranges).find(number)
    if not claimants:
        assert found is None
        return
    assert found is not None
    [claimant, *others] = claimants
    person = claimant if isinstance(claimant, int) and not others else None
    assert found.person == person
    assert found.first <= number < found.end


@given(ranges)
def test_two_ranges_overlap_if_they_have_a_number_in_common(given_ranges):
    full = [each for each in given_ranges if each.n]
    shared = any(
        sum(each.first <= number < each.end for each in full) > 1
        for number in range(100)
    )
    assert (find_overlap(full) is not None) == shared


def test_many_ranges_that_overlap_are_cut_in_few_steps():
    n_hashed = 0

    class Counting(int):
        def __hash__(self) -> int:
            nonlocal n_hashed
            n_hashed += 1
            return int(self)

    steps = []
    for n in (500, 1000, 2000):
        n_hashed = 0
        IdRanges(IdRange(each, 10_000, Counting(each)) for each in range(n))
        steps.append(n_hashed)
    assert steps[2] < 2.2 * steps[1] < 2.2 * 2.2 * steps[0]


# --- who is who -------------------------------------------------------------------------


@given(st.integers(0, N_IDS - 1), st.integers(0, N_IDS - 1))
def test_without_ranges_everybody_is_who_they_are(uid, gid):
    assert Identities().of(uid, gid) == Identity(uid, uid)


@given(st.integers(0, 65_535))
def test_all_uids_of_a_person_are_that_person(n):
    known = identities(ALICES, BOBS)
    assert known.of(ALICES.first + n, 5) == known.of(ALICE, 5) == Identity(ALICE, ALICE)
    assert known.of(BOBS.first + n, 5) == Identity(BOB, BOB)


@given(st.lists(st.integers(0, CONTAINERS.n - 1), min_size=2, unique=True))
def test_uids_of_no_known_person_count_as_one_and_share_nothing(offsets):
    known = identities(CONTAINERS)
    found = [known.of(CONTAINERS.first + each, 5) for each in offsets]
    assert len({each.user for each in found}) == 1
    assert len({each.owner for each in found}) == len(offsets)
    assert max(each.owner for each in found) < NO_UID - 2**32
    assert found[0].user > N_IDS
    assert found[0].number == CONTAINERS.first


def test_blocks_are_users_of_their_own():
    blocks = IdRange(524_288, 4 * 65_536, block=65_536)
    known = Identities(configured=IdRanges([blocks]))
    first, same, other = (known.of(524_288 + n, 5) for n in (0, 65_535, 65_536))
    assert first == same != other
    assert first.user == first.owner > N_IDS
    assert (first.number, other.number) == (524_288, 589_824)


def test_an_account_is_nobody_elses_whatever_range_it_is_in():
    everything = IdRange(0, N_IDS, ALICE)
    known = identities(everything, accounts=frozenset({0, BOB, 70_001}))
    for uid in (0, BOB, 70_001):
        assert known.of(uid, 5) == Identity(uid, uid)
    assert known.of(70_002, 5).user == ALICE


def test_what_is_configured_comes_before_the_files():
    known = Identities(
        configured=IdRanges([IdRange(100_000, 10, BOB)]), uids=IdRanges([ALICES])
    )
    assert known.of(100_009, 5).user == BOB
    assert known.of(100_010, 5).user == ALICE


def test_a_person_within_a_persons_range_is_that_person():
    inner = IdRange(300_000, 10, ALICES.first + 5)
    known = identities(ALICES, inner)
    assert known.of(300_003, 5) == Identity(ALICE, ALICE)
    inside_containers = identities(
        CONTAINERS, IdRange(300_000, 10, CONTAINERS.first + 5)
    )
    assert inside_containers.of(300_003, 5) == inside_containers.of(
        CONTAINERS.first + 5, 5
    )


def test_owners_who_name_each_other_come_to_an_end():
    one, other = IdRange(100_000, 10, 200_000), IdRange(200_000, 10, 100_000)
    assert identities(one, other).of(100_003, 5).user in (100_000, 200_000)


def test_a_uid_in_no_range_is_whose_its_group_is():
    known = identities(BOBS, gids=IdRanges([ALICES, CONTAINERS]))
    uid = 400_000
    assert known.of(uid, ALICES.first + 7) == Identity(ALICE, ALICE)
    assert known.of(uid, CONTAINERS.first) == Identity(uid, uid)
    assert known.of(uid, 5) == Identity(uid, uid)
    assert known.of(BOBS.first, ALICES.first).user == BOB
    assert known.of(FIRST_SUBORDINATE - 1, ALICES.first).user == FIRST_SUBORDINATE - 1
    own = identities(gids=IdRanges([ALICES]), accounts=frozenset({uid}))
    assert own.of(uid, ALICES.first).user == uid
