import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from inferd.residency.residency import Decision, ModelState, Residency, TurnRules
from tests.cases import each_case

NAMES = ("a", "b", "c", "d")
ALL = (*NAMES, "new-1", "new-2", "new-3")
"""Those of the start, and those that reloads bring."""
BUDGET = 10
RULES = TurnRules(min_residency_s=5, longest_wait_s=30)
RUN_S, LOAD_S, UNLOAD_S, RETRY_S = 2.0, 1.0, 1.0, 2.0
"""How long a request, a load and an unload take, and how long a failed load is not tried."""


def make(*, rules: TurnRules = RULES, keep_alive_s: float = 0, **sizes: int):
    residency = Residency(BUDGET, rules)
    for name, n_bytes in sizes.items():
        residency.add(name, n_bytes, keep_alive_s=keep_alive_s, is_pinned=False)
    return residency


def load(residency: Residency, name: str, now: float = 0) -> Decision:
    """Load a model for a request, which starts."""
    residency.arrived(name, now)
    assert name in residency.decide(now).loads
    residency.loaded(name, now)
    decision = residency.decide(now)
    assert name not in decision.closed
    residency.started(name)
    return decision


def end(
    residency: Residency,
    name: str,
    now: float,
    keep_alive_s: float | None = None,
    user: int = 1,
):
    residency.left(name, now, has_started=True, user=user, keep_alive_s=keep_alive_s)


class ResidencyMachine(RuleBasedStateMachine):
    """Requests come and go, loads succeed and fail; counters say what should be."""

    @initialize(
        sizes=st.lists(
            st.integers(0, BUDGET), min_size=len(NAMES), max_size=len(NAMES)
        ),
        pinned=st.booleans(),
        keep_alive_s=st.sampled_from([0, 7, 40]),
        others_ask=st.booleans(),
    )
    def open(
        self,
        sizes: list[int],
        pinned: bool,  # noqa: FBT001
        keep_alive_s: float,
        others_ask: bool,  # noqa: FBT001
    ) -> None:
        self.now = 0.0
        self.sizes = dict(zip(NAMES, sizes, strict=True))
        self.residency = Residency(BUDGET, RULES)
        self.pinned = {"a"} if pinned else set()
        for name, size in self.sizes.items():
            self.residency.add(
                name, size, keep_alive_s=keep_alive_s, is_pinned=name in self.pinned
            )
        self.waiting: Counter[str] = Counter()
        self.running: Counter[str] = Counter()
        self.loading: set[str] = set()
        self.unloading: set[str] = set()
        self.ready: set[str] = set()
        self.retired: set[str] = set()
        self.asked: frozenset[str] = frozenset()
        self.after: dict[str, str] = {}
        self.fresh = itertools.count(1)
        self.keep_alive_s = keep_alive_s
        self.others_ask = others_ask
        self.closed: frozenset[str] = frozenset(NAMES)
        self.decide()

    def decide(self) -> None:
        decision = self.residency.decide(self.now)
        for name in decision.loads:
            assert name not in self.loading | self.unloading | self.ready
            needed = self.waiting[name] or name in self.pinned
            assert needed or name in self.asked
            self.loading.add(name)
        for name in decision.unloads:
            assert name in self.ready
            assert not self.running[name]
            assert name not in self.pinned
            self.ready.discard(name)
            self.unloading.add(name)
        for name in decision.removed:
            assert name in self.retired
            assert not self.waiting[name] + self.running[name]
            del self.sizes[name]
        assert decision.at > self.now
        assert self.sizes.keys() - self.ready <= decision.closed
        self.closed, self.decision = decision.closed, decision

    def teardown(self) -> None:
        """Serve all that waits, perhaps while others go on asking, until nothing is left.

        Time goes on to the next event, or to when the last decision wanted the next, as in
        the daemon: what no decision asks for never happens.
        """
        if not hasattr(self, "residency"):
            return
        self.events: list[tuple[float, int, Callable[[str], None], str]] = []
        self.order = itertools.count()
        self.served: Counter[str] = Counter()
        for names, event, seconds in (
            (self.running.elements(), self.run_ended, RUN_S),
            (self.loading, self.loaded, LOAD_S),
            (self.unloading, self.unloaded, UNLOAD_S),
        ):
            for name in sorted(names):
                self.schedule(seconds, event, name)
        self.proceed()
        self.serve_those_who_wait()
        self.serve_the_rest()

    def serve_those_who_wait(self) -> None:
        """Serve each request in the stated time, also if all models are asked for all the time."""
        waiting = +self.waiting
        patient = {name: n for name, n in waiting.items() if self.has_room(name)}
        in_line = {*self.sizes} if self.others_ask else {*waiting, *self.asked}
        longest_wait_s = RULES.longest_wait_s if self.others_ask else 0
        turn_s = RULES.min_residency_s + RUN_S + UNLOAD_S + 2 * LOAD_S
        by = self.now + RETRY_S + longest_wait_s + (1 + len(in_line)) * turn_s
        while any(self.served[name] < n for name, n in patient.items()):
            assert self.go_on(), f"nobody ever serves {patient}"
            assert self.now <= by, f"{patient} wait too long, of which {self.served}"

    def serve_the_rest(self) -> None:
        self.others_ask = False
        by = self.now + 1000 * RULES.longest_wait_s
        while self.go_on() and self.now < by:
            pass
        fitting = {name for name in self.sizes if self.has_room(name)}
        assert not fitting & {
            *+self.waiting,
            *+self.running,
            *self.retired,
            *self.asked,
        }
        assert self.pinned & fitting <= self.ready
        assert self.ready <= self.pinned or not self.keep_alive_s

    def has_room(self, name: str) -> bool:
        """Return whether a model fits beside those that stay, by the sizes alone."""
        others = sum(self.sizes[each] for each in self.pinned - {name})
        return self.sizes[name] + others <= BUDGET

    def schedule(self, seconds: float, event: Callable[[str], None], name: str) -> None:
        at = self.now + seconds
        heapq.heappush(self.events, (at, next(self.order), event, name))

    def go_on(self) -> bool:
        """Go on to what comes next, and decide; return whether anything comes."""
        event_at = self.events[0][0] if self.events else math.inf
        if (at := min(self.decision.at, event_at)) == math.inf:
            return False
        self.now = at
        while self.events and self.events[0][0] <= at:
            _, _, event, name = heapq.heappop(self.events)
            event(name)
        for name in sorted(self.sizes.keys() - self.retired):
            if self.others_ask:  # before anybody could see that it is not used
                self.come(name)
                if self.waiting[name] > 1:
                    self.go(name)
        self.proceed()
        return True

    def proceed(self) -> None:
        """Decide, begin to do what was decided, and start what may start."""
        self.decide()
        for name in self.decision.loads:
            self.schedule(LOAD_S, self.loaded, name)
        for name in self.decision.unloads:
            self.schedule(UNLOAD_S, self.unloaded, name)
        for name in [*self.sizes]:
            while self.waiting[name] and name not in self.closed:
                self.begin(name)
                self.served[name] += 1
                self.schedule(RUN_S, self.run_ended, name)

    # --- what happens to models and requests ----------------------------------------

    def come(self, name: str) -> None:
        self.residency.arrived(name, self.now)
        self.waiting[name] += 1

    def go(self, name: str) -> None:
        self.waiting[name] -= 1
        self.residency.left(name, self.now, has_started=False, user=1)

    def begin(self, name: str) -> None:
        self.residency.started(name)
        self.waiting[name] -= 1
        self.running[name] += 1

    def run_ended(self, name: str, keep_alive_s: float | None = None) -> None:
        self.running[name] -= 1
        end(self.residency, name, self.now, keep_alive_s)

    def loaded(self, name: str) -> None:
        self.loading.discard(name)
        self.asked -= {name}
        self.ready.add(name)
        self.residency.loaded(name, self.now)
        if (old := self.after.pop(name, None)) in self.sizes:
            self.leave(old)

    def unloaded(self, name: str) -> None:
        self.unloading.discard(name)
        self.residency.unloaded(name, self.now)

    def leave(self, name: str) -> None:
        self.residency.retire(name)
        self.retired.add(name)
        self.pinned.discard(name)
        self.asked -= {name}

    def ask_load(self, name: str) -> None:
        self.residency.ask_load(name, self.now)
        self.asked -= {name}
        if name not in self.loading | self.ready:
            self.asked |= {name}

    # --- any order of that ------------------------------------------------------------

    @rule(name=st.sampled_from(ALL))
    def arrive(self, name: str) -> None:
        if name in self.sizes and name not in self.retired:
            self.come(name)
            self.decide()

    @rule(name=st.sampled_from(ALL))
    def start(self, name: str) -> None:
        if self.waiting[name] and name not in self.closed:
            self.begin(name)
            self.decide()

    @rule(name=st.sampled_from(ALL), keep_alive_s=st.sampled_from([None, 0, 3, 100]))
    def finish(self, name: str, keep_alive_s: float | None) -> None:
        if self.running[name]:
            self.run_ended(name, keep_alive_s)
            self.decide()

    @rule(name=st.sampled_from(ALL))
    def give_up(self, name: str) -> None:
        if self.waiting[name]:
            self.go(name)
            self.decide()

    @precondition(lambda self: self.loading)
    @rule(data=st.data(), works=st.booleans())
    def load_ends(self, data: st.DataObject, works: bool) -> None:  # noqa: FBT001
        name = data.draw(st.sampled_from(sorted(self.loading)))
        if works:
            self.loaded(name)
        else:
            self.loading.discard(name)
            self.asked -= {name}
            self.residency.failed(name, self.now, retry_at=self.now + RETRY_S)
        self.decide()

    @precondition(lambda self: self.unloading)
    @rule(data=st.data())
    def unload_ends(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.unloading)))
        self.unloaded(name)
        self.decide()

    @rule(name=st.sampled_from(ALL), loads=st.booleans())
    def ask(self, name: str, loads: bool) -> None:  # noqa: FBT001
        if name in self.sizes and name not in self.retired:
            if loads:
                self.ask_load(name)
            else:
                self.residency.ask_unload(name, self.now)
                self.asked -= {name}
            self.decide()

    @rule(name=st.sampled_from(ALL))
    def retire(self, name: str) -> None:
        if name in self.sizes:
            self.leave(name)
            self.decide()

    @rule(
        data=st.data(),
        size=st.integers(0, BUDGET),
        is_kept=st.booleans(),
        is_beside=st.booleans(),
    )
    def replace(
        self,
        data: st.DataObject,
        size: int,
        is_kept: bool,  # noqa: FBT001
        is_beside: bool,  # noqa: FBT001
    ) -> None:
        """Reload: another model comes, and the one before leaves at once or once it is loaded."""
        present = sorted(self.sizes.keys() - self.retired)
        if not present:
            return
        old, new = data.draw(st.sampled_from(present)), f"new-{next(self.fresh)}"
        self.sizes[new] = size
        self.residency.add(new, size, keep_alive_s=self.keep_alive_s, is_pinned=False)
        if is_kept and self.residency.fits(new, without=[old]):
            self.ask_load(new)
        if is_beside:
            self.after[new] = old
        else:
            self.leave(old)
        self.decide()

    @precondition(lambda self: self.loading)
    @rule(data=st.data(), size=st.integers(0, BUDGET))
    def grow(self, data: st.DataObject, size: int) -> None:
        """Load a model whose file has changed: its load ends and it waits for more memory."""
        name = data.draw(st.sampled_from(sorted(self.loading)))
        if not self.residency.resize(name, size):
            self.loading.discard(name)
            self.residency.unloaded(name, self.now)
            assert self.residency.resize(name, size)
        self.sizes[name] = size
        self.decide()

    @rule(seconds=st.sampled_from([0.5, 5, 30, 100]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.decide()

    @invariant()
    def memory_is_not_overcommitted(self) -> None:
        held = self.loading | self.unloading | self.ready
        taken = sum(size for name, size in self.sizes.items() if name in held)
        assert taken == self.residency.reserved <= BUDGET


TestResidencyMachine = ResidencyMachine.TestCase
TestResidencyMachine.settings = settings(max_examples=150, stateful_step_count=40)


class Simulation:
    """Clients that ask for one model after another, on a clock of its own.

    Loads, unloads and requests take times of at most ``load_s``, ``unload_s``, ``run_s``.
    """

    load_s, unload_s, run_s = 3.0, 1.0, 4.0

    def __init__(self, residency: Residency, rules: TurnRules, seed: int) -> None:
        self.residency, self.rules = residency, rules
        self.random = random.Random(seed)  # noqa: S311  # of a simulation
        self.now = 0.0
        self.events: list[tuple[float, int, str, str]] = []
        self.order = itertools.count()
        self.waiting: Counter[str] = Counter()
        self.wanted_since: dict[str, float] = {}
        self.longest_s = 0.0
        self.n_served: Counter[str] = Counter()
        self.closed: frozenset[str] = frozenset()

    def at(self, seconds: float, what: str, name: str) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.order), what, name))

    def run(self, names: list[str], *, n_clients: int, until: float) -> None:
        self.names = names
        for _ in range(n_clients):
            self.at(self.random.random(), "arrive", self.random.choice(names))
        while self.now < until:
            self.now, _, what, name = heapq.heappop(self.events)
            self.step(what, name)
            self.decide()

    def step(self, what: str, name: str) -> None:
        match what:
            case "arrive":
                self.residency.arrived(name, self.now)
                self.waiting[name] += 1
                self.note_wanted(name)
            case "end":
                end(self.residency, name, self.now)
                self.n_served[name] += 1
                again = self.random.choice(self.names)
                self.at(0.01 * self.random.random(), "arrive", again)
            case "loaded":
                waited = self.now - self.wanted_since.pop(name)
                self.longest_s = max(self.longest_s, waited)
                self.residency.loaded(name, self.now)
            case "unloaded":
                self.residency.unloaded(name, self.now)
                self.note_wanted(name)
            case _:
                pass

    def note_wanted(self, name: str) -> None:
        is_absent = self.residency.state(name) is ModelState.UNLOADED
        if self.waiting[name] and is_absent:
            self.wanted_since.setdefault(name, self.now)

    def decide(self) -> None:
        decision = self.residency.decide(self.now)
        for name in decision.loads:
            self.at(self.random.uniform(0, self.load_s), "loaded", name)
        for name in decision.unloads:
            self.at(self.random.uniform(0, self.unload_s), "unloaded", name)
        if decision.at < float("inf"):
            self.at(decision.at - self.now, "tick", "")
        for name in self.names:
            while self.waiting[name] and name not in decision.closed:
                self.residency.started(name)
                self.waiting[name] -= 1
                self.at(self.random.uniform(0, self.run_s), "end", name)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, BUDGET), min_size=2, max_size=4),
    min_residency_s=st.sampled_from([0.5, 5, 20]),
    longest_wait_s=st.sampled_from([0.5, 10, 40]),
    seed=st.integers(0, 2**32),
)
def test_every_model_is_loaded_within_the_stated_longest_wait(
    sizes, min_residency_s, longest_wait_s, seed
):
    rules = TurnRules(min_residency_s=min_residency_s, longest_wait_s=longest_wait_s)
    names = list(NAMES[: len(sizes)])
    residency = make(rules=rules, **dict(zip(names, sizes, strict=True)))
    simulation = Simulation(residency, rules, seed)
    simulation.run(names, n_clients=16, until=300)
    turn_s = (
        min_residency_s + simulation.run_s + simulation.unload_s + 2 * simulation.load_s
    )
    pending = [simulation.now - since for since in simulation.wanted_since.values()]
    stated_s = longest_wait_s + len(names) * turn_s
    assert max([simulation.longest_s, *pending]) <= stated_s
    assert all(simulation.n_served[name] for name in names)


def test_a_model_is_loaded_once_however_many_requests_wait():
    residency = make(a=4)
    for _ in range(16):
        residency.arrived("a", 0)
    assert residency.decide(0).loads == ["a"]
    residency.arrived("a", 1)
    assert residency.decide(1).loads == []
    residency.loaded("a", 2)
    assert residency.decide(2).closed == frozenset()


def test_the_least_recently_used_model_is_unloaded_for_another():
    residency = make(a=3, b=3, c=3, d=4)
    for now, name in enumerate("abc"):
        load(residency, name, now)
    for now, name in enumerate("bac"):
        end(residency, name, 10 + now)
    residency.arrived("d", 20)
    decision = residency.decide(20)
    assert (decision.unloads, decision.loads) == (["b"], [])
    residency.unloaded("b", 21)
    assert residency.decide(21).loads == ["d"]


def test_a_model_that_is_not_used_stays_for_its_minimum_residency():
    residency = make(a=6, b=6)
    load(residency, "a")
    end(residency, "a", 1)
    residency.arrived("b", 2)
    decision = residency.decide(2)
    assert (decision.unloads, decision.at) == ([], 5)
    assert residency.decide(5).unloads == ["a"]


def test_a_model_in_use_is_closed_after_the_longest_wait_and_unloaded_when_idle():
    residency = make(a=6, b=6)
    load(residency, "a")
    residency.arrived("b", 10)
    residency.arrived("a", 11)
    decision = residency.decide(11)
    assert ("a" in decision.closed, decision.at) == (False, 40)
    decision = residency.decide(40)
    assert ("a" in decision.closed, decision.unloads) == (True, [])
    end(residency, "a", 44)
    assert residency.decide(44).unloads == ["a"]
    residency.unloaded("a", 45)
    assert residency.decide(45).loads == ["b"]


def test_a_closed_model_opens_again_if_the_requests_that_waited_leave():
    residency = make(a=6, b=6)
    load(residency, "a")
    residency.arrived("b", 0)
    assert "a" in residency.decide(30).closed
    residency.left("b", 31, has_started=False, user=1)
    assert "a" not in residency.decide(31).closed


def test_a_small_model_does_not_keep_the_first_in_line_waiting():
    residency = make(a=6, big=8, small=3)
    load(residency, "a")
    residency.arrived("big", 1)
    residency.arrived("small", 2)
    assert residency.decide(2).loads == []


def test_a_small_model_that_fits_beside_the_first_in_line_does_not_wait_for_it():
    residency = make(a=6, big=8, small=2)
    load(residency, "a")
    residency.arrived("big", 1)
    residency.arrived("small", 2)
    assert residency.decide(2).loads == ["small"]


@each_case(("asked_s", "ends_at"), [(None, 110), (0, 110), (3, 13), (1000, 110)])
def test_a_request_shortens_the_keep_alive_that_is_configured(asked_s, ends_at):
    residency = make(a=4, keep_alive_s=100)
    load(residency, "a")
    end(residency, "a", 10, asked_s)
    assert residency.decide(10).at == ends_at
    assert residency.decide(ends_at).unloads == ["a"]


def test_a_model_stays_as_long_as_the_last_request_of_any_user_asks():
    residency = make(a=4, keep_alive_s=100)
    for now, user, asked_s, ends_at in (
        (0, 1, None, 100),
        (10, 2, 1, 100),
        (20, 1, 30, 50),
        (21, 2, 60, 81),
        (22, 2, 1, 50),
    ):
        if not now:
            load(residency, "a")
        else:
            residency.arrived("a", now)
            residency.started("a")
        end(residency, "a", now, asked_s, user)
        assert residency.decide(now).at == ends_at
    assert residency.decide(50).unloads == ["a"]
    residency.unloaded("a", 51)
    load(residency, "a", 60)
    end(residency, "a", 60, 2, user=3)
    assert residency.decide(60).at == 62  # what was asked before the load is over


def test_what_an_operator_loads_stays_whatever_a_request_asks():
    residency = make(a=4, keep_alive_s=100)
    residency.ask_load("a", 0)
    assert residency.decide(0).loads == ["a"]
    residency.loaded("a", 1)
    residency.arrived("a", 2)
    residency.started("a")
    end(residency, "a", 3, 1)
    assert residency.decide(3).at == 101


@pytest.mark.parametrize(("asked_s", "ends_at"), [(None, float("inf")), (3, 13)])
def test_without_a_configured_keep_alive_a_request_may_set_one(asked_s, ends_at):
    residency = make(a=4, keep_alive_s=0)
    load(residency, "a")
    end(residency, "a", 10, asked_s)
    assert residency.decide(10).at == ends_at


def test_a_failed_load_is_tried_again_for_those_who_come_later():
    residency = make(a=4)
    residency.arrived("a", 0)
    assert residency.decide(0).loads == ["a"]
    residency.failed("a", 1, retry_at=3)
    residency.left("a", 1, has_started=False, user=1)
    assert residency.decide(3).loads == []
    residency.arrived("a", 2)
    decision = residency.decide(2)
    assert (decision.loads, decision.at) == ([], 3)
    assert residency.decide(3).loads == ["a"]


def test_a_retired_model_serves_its_requests_and_is_forgotten():
    residency = make(a=4)
    load(residency, "a")
    residency.arrived("a", 1)
    residency.retire("a")
    assert residency.decide(1).unloads == []
    residency.started("a")
    end(residency, "a", 2)
    end(residency, "a", 2)
    assert residency.decide(2).unloads == ["a"]
    residency.unloaded("a", 3)
    assert residency.decide(3).removed == ["a"]
    assert "a" not in residency


def test_a_pinned_model_is_loaded_without_a_request_and_never_unloaded():
    residency = make(a=6)
    residency.add("b", 6, keep_alive_s=1, is_pinned=True)
    assert residency.decide(0).loads == ["b"]
    residency.loaded("b", 0)
    residency.ask_unload("b", 0)
    residency.arrived("a", 0)
    assert residency.decide(1000).unloads == []
    assert residency.most_bytes("a") == BUDGET - 6


def test_an_operator_unloads_a_model_once_its_requests_have_ended():
    residency = make(a=6)
    load(residency, "a")
    residency.ask_unload("a", 1)
    decision = residency.decide(1)
    assert (decision.unloads, "a" in decision.closed) == ([], True)
    end(residency, "a", 2)
    assert residency.decide(2).unloads == ["a"]


def test_a_load_that_is_asked_for_while_the_model_is_unloaded_follows():
    residency = make(a=6)
    residency.ask_load("a", 0)
    assert residency.decide(0).loads == ["a"]
    residency.loaded("a", 1)
    residency.ask_unload("a", 2)
    assert residency.decide(2).unloads == ["a"]
    residency.ask_load("a", 3)
    assert residency.decide(3).loads == []
    residency.unloaded("a", 4)
    assert residency.decide(4).loads == ["a"]


def test_a_pinned_model_stays_although_it_was_used_least_recently():
    residency = make(a=3, b=6)
    residency.add("p", 4, keep_alive_s=0, is_pinned=True)
    residency.adopt("p", 0)
    load(residency, "a", 10)
    end(residency, "a", 11)
    residency.arrived("b", 20)
    assert residency.decide(20).unloads == ["a"]


def test_a_model_fits_beside_another_if_the_rest_can_be_unloaded():
    residency = make(a=4, b=6, c=7)
    load(residency, "a")
    for _ in range(2):
        assert residency.fits("b", beside=["a"])
        assert not residency.fits("c", beside=["a"])
        assert residency.fits("c", without=["a"])
        residency.pin("a")
    assert not residency.fits("c")


def test_a_loaded_model_may_grow_into_free_memory_and_an_absent_one_as_it_likes():
    residency = make(a=4, b=3)
    for name in ("a", "b"):
        load(residency, name)
    assert residency.resize("a", 7)
    assert not residency.resize("b", 4)
    assert residency.resize("a", 2)
    assert residency.reserved == 5
    end(residency, "b", 1)
    residency.ask_unload("b", 1)
    residency.decide(1)
    residency.unloaded("b", 2)
    assert residency.resize("b", 11)
    residency.arrived("b", 3)
    assert residency.decide(3).loads == []
