"""Users who talk in turns to machines with slots, in simulated time.

A machine computes one prompt at a time, and its running answers share its steps: with ``n`` of
them a token takes ``step_s + n * step_each_s``. What a prompt has in the machine's cache is not
computed. Users think, send a turn with all that was said before, and read the answer.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import simpy

SPILL: Final = 1.5
"""A machine that has so many times the mean of requests, and more than ``SPILL_LEAST`` above
it, is passed over, as smg does."""
SPILL_LEAST: Final = 4
VARIES: Final = (0.5, 1.5)
"""Between which shares of its mean a cost on a core is drawn: equal ones would keep users in step
who send their turns at once, and each turn of them at the same machine."""


@dataclass(frozen=True)
class Service:
    """The times of one machine, and what it has room for."""

    slots: int
    prompt_token_s: float
    step_s: float
    step_each_s: float
    cached_conversations: int
    request_s: float = 0.0
    """Of what else each request costs before its first token, on a core."""
    end_s: float = 0.0
    """The same after its last one."""
    cores: int | None = None
    """That all machines share, as where they are processes of one; each has its own
    without it."""


@dataclass(frozen=True)
class Habits:
    """What users do."""

    think_s: float = 20.0
    """Mean of an exponential distribution; 0 if they send their next turn at once."""
    turns: int = 6
    prompt_tokens: int = 100
    answer_tokens: int = 150


@dataclass
class Machine:
    """One machine: slots, the one place where prompts are computed, and a cache."""

    env: simpy.Environment
    service: Service
    cores: simpy.Resource
    rng: random.Random
    slots: simpy.Resource = field(init=False)
    prompts: simpy.Resource = field(init=False)
    cache: OrderedDict[int, int] = field(default_factory=OrderedDict)
    n_running: int = 0
    n_here: int = 0

    def __post_init__(self) -> None:
        """Make the places."""
        self.slots = simpy.Resource(self.env, self.service.slots)
        self.prompts = simpy.Resource(self.env, 1)

    def answer(
        self, key: int, n_prompt: int, n_answer: int, began: Callable[[bool], None]
    ) -> Generator[simpy.Event, Any, None]:
        """Answer a turn.

        Args:
            key: of its conversation.
            n_prompt: tokens of all that was said before, and of the turn.
            n_answer: tokens to write.
            began: is told at the first token whether the beginning was in the cache.
        """
        service = self.service
        self.n_here += 1
        with self.slots.request() as slot:
            yield slot
            n_cached = self.cache.pop(key, 0)
            with self.prompts.request() as turn:
                yield turn
                yield from self._compute(service.request_s)
                n_new = n_prompt - n_cached
                yield self.env.timeout(n_new * service.prompt_token_s)
            began(n_cached > 0)
            self.n_running += 1
            for _ in range(n_answer):
                yield self.env.timeout(
                    service.step_s + self.n_running * service.step_each_s
                )
            self.n_running -= 1
            self._keep(key, n_prompt + n_answer)
        yield from self._compute(service.end_s)
        self.n_here -= 1

    def _compute(self, seconds: float) -> Generator[simpy.Event, Any, None]:
        if seconds:
            with self.cores.request() as core:
                yield core
                yield self.env.timeout(seconds * self.rng.uniform(*VARIES))

    def _keep(self, key: int, n_tokens: int) -> None:
        self.cache[key] = n_tokens
        while len(self.cache) > self.service.cached_conversations:
            self.cache.popitem(last=False)


Route = Callable[[Sequence[Machine], int], Machine]
"""Chooses the machine of a turn by its conversation."""


def by_prefix() -> Route:
    """Keep a conversation where it was, unless that machine has far more than the others."""
    homes: dict[int, Machine] = {}

    def route(machines: Sequence[Machine], key: int) -> Machine:
        least = min(machines, key=lambda each: each.n_here)
        home = homes.get(key, least)
        mean = sum(each.n_here for each in machines) / len(machines)
        if home.n_here > mean * SPILL and home.n_here > mean + SPILL_LEAST:
            home = least
        homes[key] = home
        return home

    return route


def in_turns() -> Route:
    """Send each turn to the next machine."""
    n_sent = 0

    def route(machines: Sequence[Machine], key: int) -> Machine:  # noqa: ARG001
        nonlocal n_sent
        n_sent += 1
        return machines[n_sent % len(machines)]

    return route


@dataclass
class Seen:
    """What users saw."""

    first_s: list[float] = field(default_factory=list)
    """Seconds until the first token of each turn."""
    n_later: int = 0
    """Turns after the first of a conversation."""
    n_cached: int = 0


def simulate(  # noqa: PLR0913  # what a run is made of
    n_users: int,
    n_machines: int,
    service: Service,
    habits: Habits,
    route: Route,
    *,
    for_s: float,
    seed: int,
) -> Seen:
    """Let users talk for some time, and return what they saw after the first tenth of it."""
    env, seen = simpy.Environment(), Seen()
    rng = random.Random(seed)  # noqa: S311  # drawn again by whoever looks
    cores = simpy.Resource(env, service.cores or n_machines)
    machines = [Machine(env, service, cores, rng) for _ in range(n_machines)]
    keys = iter(range(1 << 62))

    def talk() -> Generator[simpy.Event, Any, None]:
        while True:
            key, n_said = next(keys), 0
            for turn in range(habits.turns):
                if habits.think_s:
                    yield env.timeout(rng.expovariate(1 / habits.think_s))
                n_prompt, asked_at = n_said + habits.prompt_tokens, env.now

                def began(
                    is_cached: bool,  # noqa: FBT001  # the one thing it is told
                    asked_at: float = asked_at,
                    turn: int = turn,
                ) -> None:
                    if asked_at >= for_s / 10:
                        seen.first_s.append(env.now - asked_at)
                        seen.n_later += turn > 0
                        seen.n_cached += is_cached

                machine = route(machines, key)
                yield env.process(
                    machine.answer(key, n_prompt, habits.answer_tokens, began)
                )
                n_said = n_prompt + habits.answer_tokens

    for _ in range(n_users):
        env.process(talk())
    env.run(until=for_s)
    return seen
