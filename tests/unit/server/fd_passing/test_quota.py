import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from inferd.errors import InvalidRequestError, TooManyDescriptorsError
from inferd.limits.protocol import MAX_ATTACHMENTS
from inferd.server.fd_passing.quota import NO_FDS, FdQuota, LineFds
from tests.cases import each_case
from tests.fakes.fds import is_open, memfd, n_open

ANNA, BERT = 70_001, 70_002


def some_fds(n_fds: int) -> tuple[int, ...]:
    return tuple(memfd() for _ in range(n_fds))


def make_line_fds(n_fds: int, fd_quota: FdQuota | None = None, *, is_cut: bool = False):
    line_fds = LineFds(fd_quota or FdQuota(1000), ANNA)
    line_fds.add(some_fds(n_fds), is_cut=is_cut)
    return line_fds


# --- quota ------------------------------------------------------------------------------


def test_a_single_user_may_have_half_of_the_quota():
    fd_quota = FdQuota(10)
    assert [fd_quota.acquire(ANNA, 1) for _ in range(6)] == [True] * 5 + [False]


def test_another_user_always_gets_some():
    fd_quota = FdQuota(64)
    while fd_quota.acquire(ANNA, 1):
        pass
    assert fd_quota.acquire(BERT, 16)
    assert not fd_quota.acquire(BERT, 1)


def test_released_descriptors_can_be_acquired_again():
    fd_quota = FdQuota(4)
    assert fd_quota.acquire(ANNA, 2)
    assert not fd_quota.acquire(ANNA, 1)
    fd_quota.release(ANNA, 2)
    assert fd_quota.n_held == 0
    assert not fd_quota._held
    assert fd_quota.acquire(ANNA, 2)


def test_the_gauge_counts_open_descriptors():
    fd_quota = FdQuota(10)
    name, _, value = fd_quota.gauge()
    fd_quota.acquire(ANNA, 3)
    assert (name, value()) == ("client_fds", 3)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.sampled_from([ANNA, BERT, 7]), st.integers(1, 32))),
    st.integers(0, 300),
)
def test_all_together_are_no_more_than_the_bound(wishes, max_fds):
    fd_quota = FdQuota(max_fds)
    for uid, n_fds in wishes:
        fd_quota.acquire(uid, n_fds)
        assert fd_quota.n_held <= max_fds


# --- one line ---------------------------------------------------------------------------


def test_the_descriptors_of_a_line_are_open_until_they_are_closed():
    n_before, fd_quota = n_open(), FdQuota(100)
    line_fds = LineFds(fd_quota, ANNA)
    first, second = some_fds(2), some_fds(1)
    line_fds.add(first, is_cut=False)
    line_fds.add(second, is_cut=False)
    assert line_fds.fds == first + second
    assert all(map(is_open, line_fds.fds))
    assert fd_quota.n_held == 3
    line_fds.close()
    line_fds.close()
    assert (line_fds.fds, fd_quota.n_held, n_open()) == ((), 0, n_before)


@each_case(
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
    line_fds = make_line_fds(n_fds, is_cut=is_cut)
    assert type(line_fds.refusal) is refusal
    assert len(line_fds.fds) == (0 if line_fds.refusal else n_fds)
    line_fds.close()
    assert n_open() == n_before


def test_what_comes_after_too_many_is_closed_as_well():
    n_before = n_open()
    line_fds = make_line_fds(MAX_ATTACHMENTS + 1)
    line_fds.add(some_fds(1), is_cut=False)
    assert (line_fds.fds, n_open()) == ((), n_before)
    assert isinstance(line_fds.refusal, InvalidRequestError)


def test_over_the_quota_all_are_closed_and_the_line_is_refused():
    n_before, fd_quota = n_open(), FdQuota(9)
    line_fds = make_line_fds(4, fd_quota)
    line_fds.add(some_fds(1), is_cut=False)
    assert isinstance(line_fds.refusal, TooManyDescriptorsError)
    assert (line_fds.fds, fd_quota.n_held, n_open()) == ((), 0, n_before)


def test_a_line_without_descriptors_has_none():
    NO_FDS.close()
    assert (NO_FDS.fds, NO_FDS.cost_bytes, NO_FDS.refusal) == ((), 0, None)


class LineFdsMachine(RuleBasedStateMachine):
    """Open descriptors are those of open lines, after any sequence of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.n_before = n_open()
        self.fd_quota = FdQuota(40)
        self.lines: list[LineFds] = []

    @rule(n_fds=st.integers(0, 34), is_cut=st.sampled_from([False, False, True]))
    def come(self, n_fds, is_cut):
        self.lines.append(make_line_fds(n_fds, self.fd_quota, is_cut=is_cut))

    @rule(data=st.data(), n_fds=st.integers(0, 3))
    def add(self, data, n_fds):
        if self.lines:
            line_fds = data.draw(st.sampled_from(self.lines))
            line_fds.add(some_fds(n_fds), is_cut=False)

    @rule(data=st.data())
    def close(self, data):
        if self.lines:
            data.draw(st.sampled_from(self.lines)).close()

    @invariant()
    def what_is_open_is_counted(self):
        held = sum(len(each.fds) for each in self.lines)
        assert held == self.fd_quota.n_held == n_open() - self.n_before

    def teardown(self):
        for each in self.lines:
            each.close()


LineFdsMachine.TestCase.settings = settings(max_examples=20)
TestLineFds = pytest.mark.slow(LineFdsMachine.TestCase)
