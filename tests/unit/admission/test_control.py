from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from inferd.admission.control import Admission, RequestTraits
from inferd.admission.users import UserRequests
from inferd.backend.caller import Caller
from inferd.errors import DrainingError, QueueFullError
from inferd.limits.protocol import MAX_FRAME_BYTES
from tests.cases import each_case

UIDS = st.integers(0, 3)
PRIORITIES = st.integers(-2, 2)
CLAIMS = st.builds(
    RequestTraits,
    caller=UIDS.map(Caller),
    priority=PRIORITIES,
    n_bytes=st.integers(1, 40),
    writes=st.booleans(),
)
QUANTUM_S = 50.0
MAX_TOKENS, MAX_BYTES = 60, 90


def refusal(call: Callable[[], object]) -> QueueFullError | None:
    try:
        call()
    except QueueFullError as error:
        return error
    return None


class AdmissionMachine(RuleBasedStateMachine):
    """Requests come, are weighed, are paused and go; dictionaries say what should be."""

    @initialize(max_active=st.integers(1, 3), max_queued=st.integers(0, 8))
    def open(self, max_active: int, max_queued: int) -> None:
        self.max_active, self.max_queued = max_active, max_queued
        self.gate = Admission(
            max_active=max_active,
            max_queued=max_queued,
            max_queued_tokens=MAX_TOKENS,
            max_queued_bytes=MAX_BYTES,
            quantum_s=QUANTUM_S,
        )
        self.active: dict[int, RequestTraits] = {}
        self.waiting: dict[int, RequestTraits] = {}
        self.paused: dict[int, RequestTraits] = {}
        self.silent: dict[int, RequestTraits] = {}
        self.asked: set[int] = set()
        self.was_silent = False
        self.since: dict[int, float] = {}
        self.firsts: set[int] = set()
        self.tokens: dict[int, int] = {}
        self.passed: dict[int, Counter[int]] = {}
        self.n_seen = 0
        self.now = 0.0
        self.is_open = True

    @property
    def uids(self) -> set[int]:
        there = (*self.waiting.values(), *self.paused.values())
        return {traits.caller.user for traits in there}

    @property
    def queued_uids(self) -> set[int]:
        return {traits.caller.user for traits in self.waiting.values()}

    @property
    def held(self) -> Counter[int]:
        return Counter(traits.caller.user for traits in self.active.values())

    @rule(traits=CLAIMS)
    def arrive(self, traits: RequestTraits) -> None:
        self.n_seen += 1
        ticket = self.n_seen
        inside = (self.active, self.waiting, self.paused, self.silent)
        others = [traits for each in inside for traits in each.values()]
        mine = [each for each in others if each.caller.user == traits.caller.user]
        is_first = not [each for each in mine if each.writes or not traits.writes]
        if not self.is_open:
            with pytest.raises(DrainingError):
                self.gate.arrive(ticket, traits, now=self.now)
        elif len(self.active) < self.max_active:
            assert self.gate.arrive(ticket, traits, now=self.now) is True
            self.active[ticket] = traits
            self.since[ticket] = self.now
        else:
            self.come_to_wait(ticket, traits, is_first=is_first)

    def come_to_wait(
        self, ticket: int, traits: RequestTraits, *, is_first: bool
    ) -> None:
        places = dict.fromkeys(self.waiting, 1)
        sizes = {each: self.waiting[each].n_bytes for each in self.waiting}
        law = partial(self.law, traits.caller.user, is_first=is_first)
        laws = {
            law(places, 1, self.max_queued),
            law(sizes, traits.n_bytes, MAX_BYTES),
            "must" if self.max_queued else "must not",
        }
        refused = refusal(partial(self.gate.arrive, ticket, traits, now=self.now))
        if refused:
            assert laws != {"must"}
            assert refused.depth == len(self.waiting)
            return
        assert "must not" not in laws
        if traits.caller.user not in self.uids:
            self.passed[traits.caller.user] = Counter()
        self.waiting[ticket] = traits
        self.firsts |= {ticket} if is_first else set()

    def law(
        self, uid: int, there: dict[int, int], more: int, bound: int, *, is_first: bool
    ) -> str:
        """Say what the laws promise one who wants so much more; not all is promised."""
        whole = sum(there.values()) + more
        mine = sum(
            there[each] for each in there if self.waiting[each].caller.user == uid
        )
        share = bound // len(self.queued_uids | {uid})
        if whole == more or (whole <= bound and mine + more <= share):
            return "must"
        if not is_first:
            return "must not"
        n_firsts = len(self.firsts & there.keys()) + 1
        is_promised = whole <= bound or more <= bound // n_firsts or n_firsts == 1
        return "must" if is_promised else "may"

    @precondition(lambda self: self.active)
    @rule(data=st.data(), n_tokens=st.integers(0, 80))
    def weigh_one_that_runs(self, data: st.DataObject, n_tokens: int) -> None:
        self.gate.charge_tokens(
            data.draw(st.sampled_from(sorted(self.active))), n_tokens
        )

    @precondition(lambda self: self.waiting.keys() - self.tokens)
    @rule(data=st.data(), n_tokens=st.integers(0, 80))
    def charge_tokens(self, data: st.DataObject, n_tokens: int) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.waiting.keys() - self.tokens)))
        traits = self.waiting[ticket]
        others = {*self.waiting} - {ticket}
        there = {each: self.tokens.get(each, 0) for each in others}
        is_first = ticket in self.firsts
        law = self.law(
            traits.caller.user, there, n_tokens, MAX_TOKENS, is_first=is_first
        )
        refused = refusal(partial(self.gate.charge_tokens, ticket, n_tokens))
        if refused:
            assert law != "must"
            assert refused.depth == len(others)
            self.give_up(ticket)
        else:
            assert law != "must not"
            self.tokens[ticket] = n_tokens

    @precondition(lambda self: self.n_seen)
    @rule(data=st.data(), held_s=st.floats(0, 100))
    def leave(self, data: st.DataObject, held_s: float) -> None:
        """Some leave while they run, some while they wait, some again, some uninvited."""
        self.now += held_s
        there = sorted({*self.active, *self.waiting, *self.paused, *self.silent})
        anybody = st.integers(1, self.n_seen + 1)
        ticket = data.draw(st.sampled_from(there) | anybody if there else anybody)
        if ticket in self.active:
            self.go(ticket, self.gate.leave(ticket, now=self.now))
        else:
            self.give_up(ticket)

    @precondition(lambda self: self.active)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """A worker dies, and all that run or are paused in it go at once."""
        there = sorted({*self.active, *self.paused})
        for ticket in data.draw(st.permutations(there)):
            if ticket in self.active:
                self.go(ticket, self.gate.leave(ticket, now=self.now))
            else:
                self.give_up(ticket)

    @rule(held_s=st.floats(0, 100))
    def take_back(self, held_s: float) -> None:
        """Some are asked to pause: nobody too early, and none who is not over its share."""
        self.now += held_s
        while (ticket := self.gate.next_preemption(now=self.now).ticket) is not None:
            users = self.uids | {traits.caller.user for traits in self.active.values()}
            keeping = {
                each: self.active[each] for each in self.active.keys() - self.asked
            }
            held = Counter(traits.caller.user for traits in keeping.values())
            payer = self.active[ticket].caller.user
            assert ticket not in self.asked
            assert held[payer] * len(users) > self.max_active
            assert held[payer] == max(
                held[each.caller.user]
                for ticket, each in keeping.items()
                if self.since[ticket] + QUANTUM_S <= self.now
            )
            assert self.since[ticket] + QUANTUM_S <= self.now
            assert any(held[uid] * len(users) < self.max_active for uid in self.uids)
            self.asked.add(ticket)
            assert len(self.asked) <= len(self.waiting) + len(self.paused)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), waits=st.booleans())
    def pause(self, data: st.DataObject, *, waits: bool) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.asked)))
        self.stand_still(ticket, waits=waits)

    @precondition(lambda self: self.active)
    @rule(data=st.data())
    def fall_silent(self, data: st.DataObject) -> None:
        self.stand_still(data.draw(st.sampled_from(sorted(self.active))), waits=False)

    def stand_still(self, ticket: int, *, waits: bool) -> None:
        traits = self.active[ticket]
        self.was_silent |= not waits
        if waits and traits.caller.user not in self.uids:
            self.passed[traits.caller.user] = Counter()
        (self.paused if waits else self.silent)[ticket] = traits
        self.go(ticket, self.gate.note_paused(ticket, now=self.now, waits=waits))

    @precondition(lambda self: self.silent)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.silent)))
        traits = self.silent.pop(ticket)
        runs = len(self.active) < self.max_active
        assert self.gate.resume(ticket, now=self.now) is runs
        if runs:
            self.active[ticket] = traits
            self.since[ticket] = self.now
            return
        if traits.caller.user not in self.uids:
            self.passed[traits.caller.user] = Counter()
        self.paused[ticket] = traits

    def go(self, ticket: int, successor: int | None) -> None:
        """Take one's permit, and see who got it."""
        del self.active[ticket]
        self.asked.discard(ticket)
        if self.uids:
            self.start(successor)
        else:
            assert successor is None

    def give_up(self, ticket: int) -> None:
        assert self.gate.leave(ticket, now=self.now) is None
        self.forget(ticket)

    def start(self, ticket: int | None) -> None:
        """See that it was this one's turn."""
        assert ticket is not None
        traits = self.waiting[ticket] if ticket in self.waiting else self.paused[ticket]
        mine = [
            each
            for each in self.waiting
            if self.waiting[each].caller.user == traits.caller.user
        ]
        begun = [
            each
            for each in self.paused
            if self.paused[each].caller.user == traits.caller.user
        ]
        assert ticket == min(begun, default=None) or not begun
        assert begun or ticket == max(
            mine, key=lambda each: (self.waiting[each].priority, -each)
        )
        held = self.held
        assert held[traits.caller.user] == min(held[uid] for uid in self.uids)
        for uid in self.uids - {traits.caller.user}:
            assert (
                not self.passed[uid][traits.caller.user]
                or held[traits.caller.user] < held[uid]
            )
            self.passed[uid][traits.caller.user] += 1
        self.passed[traits.caller.user] = Counter()
        self.forget(ticket)
        self.active[ticket] = traits
        self.since[ticket] = self.now

    def forget(self, ticket: int) -> None:
        for each in (self.waiting, self.paused, self.silent):
            each.pop(ticket, None)
        self.firsts.discard(ticket)
        self.tokens.pop(ticket, None)

    @precondition(lambda self: self.n_seen > 20)  # or most would find it closed
    @rule()
    def close(self) -> None:
        self.gate.close()
        self.is_open = False

    @invariant()
    def the_gate_counts_right(self) -> None:
        assert self.gate.active == len(self.active) <= self.max_active
        assert self.gate.waiting == len(self.waiting) <= 2 * self.max_queued
        assert self.gate.n_paused == len(self.paused) + len(self.silent)
        assert self.gate.waiting_tokens == sum(self.tokens.values())
        assert self.gate.waiting_bytes == sum(
            traits.n_bytes for traits in self.waiting.values()
        )

    @invariant()
    def what_waits_is_bounded_whatever_came(self) -> None:
        sizes = {each: self.waiting[each].n_bytes for each in self.waiting}
        places = dict.fromkeys(self.waiting, 1)
        assert self.is_bounded(places, self.max_queued)
        assert self.is_bounded(sizes, MAX_BYTES)
        assert self.is_bounded(self.tokens, MAX_TOKENS)

    def is_bounded(self, there: dict[int, int], bound: int) -> bool:
        """Tell whether the rest have one bound, and firsts that and shares of another."""
        firsts = [there[each] for each in there if each in self.firsts]
        rest = [there[each] for each in there if each not in self.firsts]
        shares = sum(bound // place for place in range(2, len(firsts) + 1))
        return sum(rest) <= max([bound, *rest]) and sum(firsts) <= (
            max([bound, *firsts]) + shares
        )

    @invariant()
    def nobody_waits_while_a_permit_is_free(self) -> None:
        assert not self.uids or self.gate.active == self.max_active

    @invariant()
    def a_user_has_no_more_begun_than_there_are_permits(self) -> None:
        if not self.was_silent:
            there = (*self.active.values(), *self.paused.values())
            begun = Counter(each.caller.user for each in there)
            assert all(n <= self.max_active for n in begun.values())

    @invariant()
    def who_is_alone_may_use_everything(self) -> None:
        everybody = {
            each.caller.user for each in (*self.active.values(), *self.waiting.values())
        }
        if len(everybody) == 1 and not self.firsts:
            assert len(self.waiting) <= self.max_queued

    def teardown(self) -> None:
        """What the order foretells happens when nobody else comes; then all is empty."""
        for ticket in [*self.silent]:
            self.give_up(ticket)
        order = list(self.gate.order())
        assert sorted(order) == sorted({*self.waiting, *self.paused})
        started: list[int] = []
        while self.active:
            before = {*self.active}
            ticket = next(iter(self.active))
            self.go(ticket, self.gate.leave(ticket, now=self.now))
            started += self.active.keys() - before
        assert started == order or self.max_active > 1
        for name in (
            "active",
            "waiting",
            "n_paused",
            "waiting_tokens",
            "waiting_bytes",
        ):
            assert getattr(self.gate, name) == 0
        assert vars(self.gate._users) == vars(UserRequests())
        for kept in (
            self.gate._requests,
            self.gate._running,
            self.gate._queue.shares,
            self.gate._backlog._shares,
        ):
            assert not kept


AdmissionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50)
TestAnyOrderOfEvents = pytest.mark.slow(AdmissionMachine.TestCase)


# --- a conversation with a gate -----------------------------------------------------------


class Admissions:
    """A gate, the tickets of those who came, and a clock."""

    def __init__(self, *, max_active: int = 1, max_queued: int = 10, **bounds: int):
        self.gate = Admission(max_active=max_active, max_queued=max_queued, **bounds)
        self.now = 0.0
        self.n_tickets = 0

    def arrive(self, uid: int = 0, *, n_tokens: int = 0, **traits) -> int:
        ticket = self.n_tickets
        self.gate.arrive(ticket, RequestTraits(Caller(uid), **traits), now=self.now)
        self.n_tickets += 1
        try:
            self.gate.charge_tokens(ticket, n_tokens)
        except QueueFullError:
            self.gate.leave(ticket, now=self.now)
            raise
        return ticket

    def refuses(self, uid: int = 0, **traits) -> QueueFullError:
        waiting = self.gate.waiting
        with pytest.raises(QueueFullError, match=r"^queue full$") as caught:
            self.arrive(uid, **traits)
        assert caught.value.depth == self.gate.waiting == waiting
        return caught.value

    def leave(self, ticket: int) -> int | None:
        return self.gate.leave(ticket, now=self.now)

    def starts(self, running: int = 0) -> list[int]:
        """Let all run, one after the other; give who started."""
        started = [running]
        while (ticket := self.leave(started[-1])) is not None:
            started.append(ticket)
        return started[1:]


def admissions_with(*waiting: tuple[int, int], runs: int = 9) -> Admissions:
    """Make admissions where 0 runs and 1, 2, … wait: each a user and a priority."""
    admissions = Admissions(max_queued=4 * len(waiting))
    admissions.arrive(runs)
    for uid, priority in waiting:
        admissions.arrive(uid, priority=priority)
    return admissions


def test_those_of_one_user_start_in_the_order_they_came():
    assert admissions_with((1, 0), (1, 0), (1, 0)).starts() == [1, 2, 3]


def test_who_waits_and_leaves_is_passed_over():
    admissions = admissions_with((1, 0), (1, 0))
    assert admissions.leave(1) is None
    assert admissions.leave(0) == 2


def test_leaving_twice_frees_one_permit():
    admissions = Admissions(max_active=2, max_queued=2)
    for _ in range(4):
        admissions.arrive()
    assert (admissions.leave(0), admissions.leave(0)) == (2, None)
    assert (admissions.gate.active, admissions.gate.waiting) == (2, 1)


def test_a_closed_gate_lets_those_inside_go_on():
    admissions = admissions_with((1, 0))
    admissions.gate.close()
    with pytest.raises(DrainingError):
        admissions.arrive()
    assert admissions.starts() == [1]


# --- turns ------------------------------------------------------------------------------


@each_case(
    ("waiting", "order"),
    [
        ([(1, 0), (1, 5), (1, 0), (1, 5)], [2, 4, 1, 3]),
        ([(1, 0), (2, 0), (1, 10)], [3, 2, 1]),
        ([(1, -10), (2, -5), (1, 10), (2, 0), (3, 0)], [3, 4, 5, 1, 2]),
        ([(1, 0), (2, 10)], [1, 2]),
        ([(1, 0), (1, 0), (1, 0), (2, 0), (3, 0), (2, 0)], [1, 4, 5, 2, 6, 3]),
    ],
)
def test_users_take_turns_and_each_ranks_its_own(waiting, order):
    assert list(admissions_with(*waiting).gate.order()) == order
    assert admissions_with(*waiting).starts() == order


def test_one_who_comes_goes_before_one_who_was_just_served():
    admissions = admissions_with((1, 0), (1, 0), (1, 0))
    assert admissions.leave(0) == 1
    admissions.arrive(2)
    admissions.arrive(3)
    assert list(admissions.gate.order()) == [4, 5, 2, 3]


def test_one_who_ran_at_once_was_served_as_well():
    admissions = admissions_with((9, 0))
    admissions.arrive(2)
    assert list(admissions.gate.order()) == [2, 1]


def test_coming_anew_for_each_request_passes_nobody():
    admissions = admissions_with((1, 0), (1, 0), (2, 0))
    admissions.arrive(3)
    assert admissions.leave(0) == 1
    assert admissions.leave(1) == 3
    assert admissions.leave(3) == 4
    admissions.arrive(2)
    assert list(admissions.gate.order()) == [2, 5]


@settings(max_examples=40)
@given(st.lists(st.tuples(UIDS, PRIORITIES), max_size=12))
def test_no_priority_changes_when_another_user_has_a_turn(waiting):
    ranked = [waiting[each - 1][0] for each in admissions_with(*waiting).starts()]
    plain = admissions_with(*((uid, 0) for uid, _ in waiting)).starts()
    assert ranked == [waiting[each - 1][0] for each in plain]


# --- places -----------------------------------------------------------------------------


def test_alone_a_user_may_have_every_place_and_no_more():
    admissions = Admissions(max_queued=3)
    for _ in range(4):
        admissions.arrive(1)
    admissions.refuses(1, priority=10)
    admissions.leave(0)
    admissions.arrive(1)


def test_without_places_nobody_waits():
    admissions = Admissions(max_queued=0)
    admissions.arrive(1)
    admissions.refuses(1)
    admissions.refuses(2)


def test_others_who_fill_the_queue_keep_nobody_out():
    admissions = admissions_with(*[(1, 0)] * 5, runs=1)
    while admissions.gate.waiting < 20:
        admissions.arrive(1)
    admissions.refuses(1)
    second = admissions.arrive(2)
    admissions.refuses(2)
    assert admissions.leave(0) == second


def test_where_several_wait_none_gets_a_place_over_its_share():
    admissions = Admissions(max_queued=4)
    for uid in (1, 1, 2, 1):
        admissions.arrive(uid)
    admissions.refuses(1)
    admissions.arrive(2)
    admissions.refuses(2)
    assert admissions.gate.waiting == 4


def test_vectors_keep_no_text_of_the_same_user_out():
    admissions = Admissions(max_queued=2)
    for _ in range(3):
        admissions.arrive(1, writes=False)
    admissions.refuses(1, writes=False)
    chat = admissions.arrive(1)
    admissions.refuses(1)
    assert list(admissions.gate.order()) == [1, 2, chat]


# --- bytes and tokens ---------------------------------------------------------------------


@pytest.mark.parametrize("of_what", ["n_bytes", "n_tokens"])
class TestEitherBound:
    def admissions(self) -> Admissions:
        admissions = Admissions(max_queued_bytes=100, max_queued_tokens=100)
        admissions.arrive(1)
        return admissions

    def test_what_waits_is_no_more_than_the_bound(self, of_what):
        admissions = self.admissions()
        admissions.arrive(1, **{of_what: 60})
        admissions.refuses(1, **{of_what: 41})
        admissions.arrive(1, **{of_what: 40})
        admissions.refuses(1, **{of_what: 1})

    def test_what_runs_does_not_count(self, of_what):
        admissions = self.admissions()
        admissions.arrive(1, **{of_what: 100})
        assert admissions.leave(0) == 1
        admissions.arrive(1, **{of_what: 100})

    def test_one_that_waits_alone_may_be_of_any_size(self, of_what):
        admissions = self.admissions()
        admissions.arrive(1, **{of_what: 1000})
        admissions.refuses(1, **{of_what: 1})
        assert admissions.leave(1) is None
        admissions.arrive(1, **{of_what: 1000})

    def test_where_several_wait_each_has_an_equal_share(self, of_what):
        admissions = self.admissions()
        admissions.arrive(2, **{of_what: 10})
        admissions.arrive(1, **{of_what: 50})
        admissions.refuses(1, **{of_what: 1})
        admissions.arrive(2, **{of_what: 40})

    def test_one_who_comes_to_wait_counts_in_its_own_share(self, of_what):
        admissions = Admissions(
            max_active=2, max_queued_bytes=100, max_queued_tokens=100
        )
        for uid in (1, 2):
            admissions.arrive(uid)
        admissions.arrive(1, **{of_what: 10})
        admissions.refuses(2, **{of_what: 51})
        admissions.arrive(2, **{of_what: 50})

    def test_first_ones_have_what_others_leave_or_an_even_share(self, of_what):
        admissions = self.admissions()
        admissions.arrive(1, **{of_what: 1000})
        admissions.arrive(2, **{of_what: 30})
        admissions.refuses(3, **{of_what: 71})
        admissions.arrive(3, **{of_what: 70})
        admissions.refuses(4, **{of_what: 34})
        admissions.arrive(4, **{of_what: 33})

    def test_one_large_first_request_keeps_no_other_out(self, of_what):
        admissions = self.admissions()
        admissions.arrive(2, **{of_what: 1000}, writes=False)
        admissions.arrive(2, **{of_what: 50})
        admissions.refuses(3, **{of_what: 34})
        admissions.arrive(3, **{of_what: 33})


def test_a_chat_comes_in_behind_another_users_vectors_of_300_000_tokens():
    admissions = Admissions(max_active=4)
    for _ in range(4):
        admissions.arrive(1)
    admissions.arrive(2, n_tokens=300_000, writes=False)
    chat = admissions.arrive(3, n_tokens=20)
    assert list(admissions.gate.order()) == [4, chat]


def test_two_largest_lines_of_one_user_keep_no_new_user_out():
    admissions = Admissions()
    admissions.arrive(1)
    admissions.arrive(2, n_bytes=MAX_FRAME_BYTES, writes=False)
    admissions.arrive(2, n_bytes=MAX_FRAME_BYTES)
    for uid in range(3, 11):
        admissions.arrive(uid, n_bytes=MAX_FRAME_BYTES // 5)
    assert admissions.gate.waiting == 10


# --- the hint -----------------------------------------------------------------------------


def test_before_any_permit_came_back_nothing_is_said_of_when():
    admissions = Admissions(max_queued=0)
    admissions.arrive()
    assert admissions.refuses().retry_after_ms is None


def test_the_hint_is_a_turn_of_each_user_at_the_pace_of_late():
    admissions = Admissions(max_active=2, max_queued=2)
    admissions.arrive(1)
    admissions.now = 4
    admissions.leave(0)
    for uid in (1, 1, 1, 2):
        admissions.arrive(uid)
    assert admissions.refuses(1).retry_after_ms == 4000


def test_one_who_waits_in_vain_holds_no_permit_and_changes_no_hint():
    admissions = Admissions(max_queued=1)
    admissions.arrive()
    admissions.arrive()
    admissions.now = 50
    admissions.leave(1)
    admissions.arrive()
    assert admissions.refuses().retry_after_ms is None


# --- other bounds -------------------------------------------------------------------------


def test_more_may_wait_from_when_the_bounds_grow():
    admissions = Admissions(max_queued=0)
    admissions.arrive()
    admissions.refuses()
    admissions.gate.resize(max_queued=2, max_queued_tokens=100, max_queued_bytes=100)
    admissions.arrive(n_bytes=60, n_tokens=60)
    admissions.refuses(n_bytes=60)
    admissions.arrive(n_bytes=40)
    admissions.refuses()


def test_those_who_wait_stay_when_the_bounds_shrink():
    admissions = Admissions(max_queued=3)
    for _ in range(4):
        admissions.arrive()
    admissions.gate.resize(max_queued=1, max_queued_tokens=100, max_queued_bytes=100)
    assert admissions.gate.waiting == 3
    admissions.refuses()
    assert [admissions.leave(ticket) for ticket in range(4)] == [1, 2, 3, None]


# --- backends that are held ---------------------------------------------------------------


def of(backend: str, uid: int = 1, priority: int = 0) -> RequestTraits:
    return RequestTraits(Caller(uid), backend=backend, priority=priority)


def test_requests_of_a_held_backend_wait_and_others_pass_them():
    gate = Admission(max_active=1, max_queued=4)
    gate.hold("a")
    assert not gate.arrive(1, of("a"), now=0)
    assert gate.arrive(2, of("b"), now=0)
    assert not gate.arrive(3, of("b"), now=0)
    assert (gate.waiting, list(gate.order())) == (2, [3, 1])
    assert gate.leave(2, now=1) == 3
    assert gate.leave(3, now=2) is None
    assert gate.active == 0
    assert gate.release("a", now=3) == [1]
    assert gate.leave(1, now=4) is None


def test_requests_that_wait_already_are_held_and_keep_their_order_afterwards():
    gate = Admission(max_active=1, max_queued=9)
    assert gate.arrive(0, of("b"), now=0)
    for ticket, priority in enumerate((0, 5, 0), 1):
        gate.arrive(ticket, of("a", priority=priority), now=0)
    gate.arrive(4, of("b"), now=0)
    gate.hold("a")
    gate.hold("a")
    assert next(iter(gate.order())) == 4
    assert gate.release("a", now=1) == []
    assert list(gate.order()) == [2, 1, 3, 4]


def test_a_held_request_counts_in_the_queue_and_may_leave():
    gate = Admission(max_active=4, max_queued=1)
    gate.hold("a")
    gate.arrive(1, of("a"), now=0)
    assert refusal(lambda: gate.arrive(2, of("a"), now=0)) is not None
    assert gate.leave(1, now=0) is None
    assert gate.waiting == 0
    gate.arrive(3, of("a"), now=0)
    assert gate.release("a", now=0) == [3]


def test_a_request_that_had_a_permit_is_not_held():
    gate = Admission(max_active=1, max_queued=9, quantum_s=1)
    assert gate.arrive(1, of("a", uid=1), now=0)
    gate.arrive(2, of("b", uid=2), now=0)
    assert gate.next_preemption(now=1).ticket == 1
    assert gate.note_paused(1, now=1) == 2
    gate.hold("a")
    assert gate.leave(2, now=2) == 1
