"""An attack by load: the victim asks plain questions before it, during it and after it."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from attack import victim as asking
from attack.asking import Question, plain
from attack.measures import DONE, Latency, Tally, latency
from attack.place import BEGUN, CYCLED, STOP, Place, Run, attack_at
from attack.scene import Scene, SkippedError, person, victim
from attack.target import Target, calmed, holdings, is_root
from attack.users import ATTACKER, Person
from tests.daemon.harness import mock
from torture.outcome import MS

MOCK: Final[Mapping[str, Any]] = {"backend": [mock(tokens=["x"])]}
CHAT: Final[Mapping[str, Any]] = {}
"""The embedded model, as without a configuration."""
HELLO: Final = plain("hello", max_tokens=1, temperature=0)
PATIENCE_S: Final = 30.0
"""Seconds after which the victim gives up a request."""
BEGIN_S: Final = 30.0
"""Seconds in which an attack is in place."""
CYCLE_S: Final = 240.0
"""Seconds after which an attack that has not done all it has is stopped."""
END_S: Final = 30.0
IDLE_SHARE: Final = 0.5
"""Of the seconds of the attack, before it."""
AFTER_SHARE: Final = 0.1
"""Of the seconds of the attack, after it."""
KEPT_FDS: Final = 4
"""Descriptors that a daemon may have more than before: of what it starts when needed."""
HOSTILE_S: Final = 5.0
"""Seconds in which a hostile structure is served or refused."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What holds while one user does the worst.

    Args:
        new_p99_ms: of the victim's requests on new connections; 0 for no bound.
        open_p99_ms: of those on a connection that is open.
        max_s: of every request of the victim's.
        hostile_s: of every request of the attacker's.
        hostile_codes: with which those may end; any code where there is none.
    """

    new_p99_ms: float = 0.0
    open_p99_ms: float = 0.0
    max_s: float = PATIENCE_S
    hostile_s: float = 0.0
    hostile_codes: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Load:
    """An attack that keeps the daemon busy.

    Args:
        name: of the attack.
        kind: the module of its kind.
        about: what it does, in some words.
        run: does it, in a process of the attacker's.
        config: of the daemon; takes a directory for models.
        question: what the victim asks.
        bounds: what has to hold.
        uids: of the attackers, a process each.
        is_any: whether a service with any configuration can be attacked so.
        is_whole: whether it lasts until each of its requests was asked once.
        is_at_once: whether the victim asks on both connections at once, which takes two
            places where requests have to wait.
        prefix: words before the daemon's command.
    """

    name: str
    kind: str
    about: str
    run: Run
    bounds: Bounds
    config: Mapping[str, Any] = field(default_factory=lambda: MOCK)
    question: Question = HELLO
    uids: Sequence[int] = (ATTACKER,)
    is_any: bool = True
    is_whole: bool = False
    is_at_once: bool = False
    prefix: Sequence[str] = ()

    def try_in(self, scene: Scene) -> None:
        """Measure, attack, and judge.

        Raises:
            SkippedError: this machine lacks what it takes.
        """
        if not is_root():
            raise SkippedError("needs root, to be two users")
        with scene.target(
            self.config, is_any=self.is_any, prefix=self.prefix
        ) as target:
            _press(scene, self, target)
        _judge(scene, self.bounds)


def _press(scene: Scene, load: Load, target: Target) -> None:
    with ExitStack() as stack:
        neighbour = stack.enter_context(victim())
        attackers = [stack.enter_context(person(uid)) for uid in load.uids]
        ask_on = partial(asking.ask_on, is_at_once=load.is_at_once)
        neighbour.begin(ask_on, target.directory, load.question, PATIENCE_S)
        neighbour.tell("tell")
        neighbour.result()  # the first of all, before whatever is made only once
        time.sleep(scene.seconds * IDLE_SHARE)
        _tell(scene, neighbour, "idle")
        scene.holdings["before"] = holdings(target)
        tally = _attack(scene, load, attackers, neighbour, target.directory)
        scene.codes, scene.slowest = dict(tally.codes), tally.slowest
        time.sleep(scene.seconds * AFTER_SHARE)
        _tell(scene, neighbour, "after")
        neighbour.tell(STOP)
        neighbour.result()
    n_kept = scene.holdings["before"].n_fds + KEPT_FDS
    scene.holdings["after"] = calmed(target, n_kept)


def _tell(scene: Scene, neighbour: Person, when: str) -> None:
    neighbour.tell("tell")
    told = neighbour.result()
    for which, samples in zip(("new", "open"), told, strict=True):
        idle = scene.latencies.get(f"idle {which}")
        usual = (
            median([each.seconds for each in samples])
            if idle is None
            else idle.p50_ms / MS
        )
        scene.latencies[f"{when} {which}"] = latency(samples, asking.PAUSE_S + usual)


def _attack(
    scene: Scene,
    load: Load,
    attackers: Sequence[Person],
    neighbour: Person,
    directory: Path,
) -> Tally:
    for number, attacker in enumerate(attackers):
        place = Place(directory, number, scene.scale)
        attacker.begin(attack_at, load.run, place)
    for attacker in attackers:
        _await_word(attacker, BEGUN, BEGIN_S)
    until = time.monotonic() + scene.seconds
    asked = [
        not load.is_whole or _await_word(each, CYCLED, CYCLE_S) for each in attackers
    ]
    if not all(asked):
        scene.notes.append(f"not every request was asked in {CYCLE_S:.0f} s")
    time.sleep(max(0.0, until - time.monotonic()))
    _tell(scene, neighbour, "attacked")
    tally = Tally()
    for attacker in attackers:
        attacker.tell(STOP)
        tally.add(_last(attacker))
    return tally


def _await_word(attacker: Person, word: str, within_s: float) -> bool:
    if not attacker.hears(within_s):
        return False
    found = attacker.result()
    return bool(found == word) or (found == BEGUN and _await_word(attacker, word, 0))


def _last(attacker: Person) -> Tally:
    while attacker.hears(END_S):
        if isinstance(found := attacker.result(), Tally):
            return found
    return Tally()


def _judge(scene: Scene, bounds: Bounds) -> None:
    for when in ("attacked", "after"):
        for which in ("new", "open"):
            found = scene.latencies[f"{when} {which}"]
            scene.require(
                f"{which} connection, {when}: every request is served",
                not found.n_failed,
                f"{found.n_failed} of {found.n} ended otherwise: {found.codes}",
            )
    new, opened = (scene.latencies[f"attacked {each}"] for each in ("new", "open"))
    _bound(scene, "new connection", new, bounds.new_p99_ms)
    _bound(scene, "open connection", opened, bounds.open_p99_ms)
    longest = max(new.max_ms, opened.max_ms) / MS
    scene.require_in_time(
        f"no request takes over {bounds.max_s:.0f} s",
        longest < bounds.max_s,
        f"one took {longest:.1f} s",
    )
    _judge_hostile(scene, bounds)
    before, after = scene.holdings["before"], scene.holdings["after"]
    scene.require(
        "the workers are the same processes",
        before.workers and before.workers == after.workers,
        f"{before.workers} before, {after.workers} after",
    )
    scene.require(
        "no descriptors are left",
        after.n_fds <= before.n_fds + KEPT_FDS,
        f"{before.n_fds} before, {after.n_fds} after",
    )


def _bound(scene: Scene, what: str, found: Latency, p99_ms: float) -> None:
    if not p99_ms:
        return
    idle = scene.latencies[f"idle {what.partition(' ')[0]}"]
    if idle.p99_ms > p99_ms:
        scene.notes.append(f"the machine is busy: {what}, idle: {idle.p99_ms} ms")
    scene.require_in_time(
        f"{what}: p99 within {p99_ms:.0f} ms",
        found.p99_ms <= p99_ms,
        f"{found.p99_ms:,.0f} ms, idle {idle.p99_ms:,.0f} ms",
    )


def _judge_hostile(scene: Scene, bounds: Bounds) -> None:
    if bounds.hostile_codes:
        allowed = {DONE, *bounds.hostile_codes}
        others = {code: n for code, n in scene.codes.items() if code not in allowed}
        scene.require("hostile requests are served or refused", not others, f"{others}")
    if bounds.hostile_s and scene.slowest:
        worst = scene.slowest[0]
        scene.require_in_time(
            f"hostile requests end within {bounds.hostile_s:.0f} s",
            worst.seconds <= bounds.hostile_s,
            f"{worst.name}: {worst.seconds:.1f} s, {worst.code}",
        )
