import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from inferd.errors import InvalidRequestError, TooManyDescriptorsError
from inferd.limits import MAX_ATTACHMENTS
from inferd.server.custody import NOTHING, Custody, Parcel
from tests.fakes.fds import is_open, memfd, n_open

ANNA, BERT = 70_001, 70_002


def some_fds(n_fds: int) -> tuple[int, ...]:
    return tuple(memfd() for _ in range(n_fds))


def parcel_of(n_fds: int, custody: Custody | None = None, *, is_cut: bool = False):
    parcel = Parcel(custody or Custody(1000), ANNA)
    parcel.add(some_fds(n_fds), is_cut=is_cut)
    return parcel


# --- how many ---------------------------------------------------------------------------


def test_one_user_alone_may_have_half_of_all():
    custody = Custody(10)
    assert [custody.take(ANNA, 1) for _ in range(6)] == [True] * 5 + [False]


def test_who_comes_finds_some_however_many_others_have():
    custody = Custody(64)
    while custody.take(ANNA, 1):
        pass
    assert custody.take(BERT, 16)
    assert not custody.take(BERT, 1)


def test_what_is_given_back_may_be_taken_again():
    custody = Custody(4)
    assert custody.take(ANNA, 2)
    assert not custody.take(ANNA, 1)
    custody.give_back(ANNA, 2)
    assert custody.n_held == 0
    assert not custody._held
    assert custody.take(ANNA, 2)


def test_the_figure_is_what_is_open():
    custody = Custody(10)
    name, _, value = custody.figure()
    custody.take(ANNA, 3)
    assert (name, value()) == ("client_fds", 3)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.sampled_from([ANNA, BERT, 7]), st.integers(1, 32))),
    st.integers(0, 300),
)
def test_all_together_are_no_more_than_the_bound(wishes, max_fds):
    custody = Custody(max_fds)
    for uid, n_fds in wishes:
        custody.take(uid, n_fds)
        assert custody.n_held <= max_fds


# --- one parcel -------------------------------------------------------------------------


def test_a_parcel_has_its_descriptors_open_until_it_is_closed():
    n_before, custody = n_open(), Custody(100)
    parcel = Parcel(custody, ANNA)
    first, second = some_fds(2), some_fds(1)
    parcel.add(first, is_cut=False)
    parcel.add(second, is_cut=False)
    assert parcel.fds == first + second
    assert all(map(is_open, parcel.fds))
    assert custody.n_held == 3
    parcel.close()
    parcel.close()
    assert (parcel.fds, custody.n_held, n_open()) == ((), 0, n_before)


@pytest.mark.parametrize(
    ("n_fds", "is_cut", "refusal"),
    [
        (MAX_ATTACHMENTS, False, type(None)),
        (MAX_ATTACHMENTS + 1, False, InvalidRequestError),
        (MAX_ATTACHMENTS, True, InvalidRequestError),
        (1, True, TooManyDescriptorsError),
        (0, True, TooManyDescriptorsError),
    ],
)
def test_more_than_a_line_may_have_are_all_closed(n_fds, is_cut, refusal):
    n_before = n_open()
    parcel = parcel_of(n_fds, is_cut=is_cut)
    assert type(parcel.refusal) is refusal
    assert len(parcel.fds) == (0 if parcel.refusal else n_fds)
    parcel.close()
    assert n_open() == n_before


def test_what_comes_after_too_many_is_closed_as_well():
    n_before = n_open()
    parcel = parcel_of(MAX_ATTACHMENTS + 1)
    parcel.add(some_fds(1), is_cut=False)
    assert (parcel.fds, n_open()) == ((), n_before)
    assert isinstance(parcel.refusal, InvalidRequestError)


def test_without_room_all_are_closed_and_it_is_told():
    n_before, custody = n_open(), Custody(9)
    parcel = parcel_of(4, custody)
    parcel.add(some_fds(1), is_cut=False)
    assert isinstance(parcel.refusal, TooManyDescriptorsError)
    assert (parcel.fds, custody.n_held, n_open()) == ((), 0, n_before)


def test_nothing_comes_with_most_lines():
    NOTHING.close()
    assert (NOTHING.fds, NOTHING.size, NOTHING.refusal) == ((), 0, None)


class Parcels(RuleBasedStateMachine):
    """Whatever becomes of parcels, what is open is what they have."""

    def __init__(self) -> None:
        super().__init__()
        self.n_before = n_open()
        self.custody = Custody(40)
        self.parcels: list[Parcel] = []

    @rule(n_fds=st.integers(0, 34), is_cut=st.sampled_from([False, False, True]))
    def come(self, n_fds, is_cut):
        self.parcels.append(parcel_of(n_fds, self.custody, is_cut=is_cut))

    @rule(data=st.data(), n_fds=st.integers(0, 3))
    def add(self, data, n_fds):
        if self.parcels:
            parcel = data.draw(st.sampled_from(self.parcels))
            parcel.add(some_fds(n_fds), is_cut=False)

    @rule(data=st.data())
    def close(self, data):
        if self.parcels:
            data.draw(st.sampled_from(self.parcels)).close()

    @invariant()
    def what_is_open_is_counted(self):
        held = sum(len(each.fds) for each in self.parcels)
        assert held == self.custody.n_held == n_open() - self.n_before

    def teardown(self):
        for each in self.parcels:
            each.close()


Parcels.TestCase.settings = settings(max_examples=20)
TestParcels = pytest.mark.slow(Parcels.TestCase)
