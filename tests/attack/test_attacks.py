"""A short form of the attacks: what is served, in which order and by whom, not how fast.

A daemon's answer to each question is asked for with a patience of half a minute, which
nothing here comes near but what starves.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from attack.catalogue import BY_NAME
from attack.load import CHAT, Load
from attack.scene import Scene
from attack.target import Started, started
from attack.trial import Verdict, try_attack

ROOT = Path(__file__).parents[2]


class Short(NamedTuple):
    """How much of an attack is tried."""

    scale: float = 1.0
    seconds: float = 1.0


WITH_A_MODEL = {
    "gbnf-escapes": Short(),
    "gbnf": Short(0.15),
    "lark": Short(0.3),
    "patterns": Short(0.3),
    "schemas": Short(0.15),
    "conversations": Short(0.2),
    "tools-qwen3-coder": Short(0.05),
    "tools-harmony": Short(0.05),
    "tools-gemma4": Short(0.05),
    "hogs": Short(),
    "held-hogs": Short(0.25),
    "guess-prompts": Short(0.01),
    "guess-schemas": Short(0.1),
    "headers": Short(),
    "terminal-names": Short(),
}
WITHOUT_A_MODEL = {
    "cancels": Short(0.1),
    "appends": Short(0.1),
    "refusals": Short(0.1),
    "unread-refusals": Short(0.1),
    "broken-lines": Short(0.1),
    "churn": Short(),
    "idle": Short(),
    "descriptors": Short(0.1),
    "strangers": Short(0.2),
    "orders": Short(0.2),
    "large-logit-bias": Short(0.05),
    "large-messages": Short(0.05),
    "recordings": Short(),
    "no-readers": Short(0.3),
    "subordinates": Short(),
    "names": Short(0.3),
    "box-user": Short(),
    "box-root": Short(),
    "impostor": Short(),
    "terminal-answers": Short(),
    "terminal-paths": Short(),
    "terminal-replies": Short(),
    "log-refusals": Short(0.3),
    "log-broken-lines": Short(0.3),
}
AT_ONE_DAEMON = {
    *("gbnf-escapes", "gbnf", "lark", "patterns", "schemas", "conversations"),
    *("hogs", "held-hogs"),
}
SHORT = WITH_A_MODEL | WITHOUT_A_MODEL


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    """Run alone what asks who is served."""
    marks = [pytest.mark.alone] * isinstance(BY_NAME[name], Load)
    return [*marks, pytest.mark.model] if name in WITH_A_MODEL else marks


NAMES = [pytest.param(name, marks=marks_of(name)) for name in SHORT]


@pytest.fixture(scope="module")
def chat() -> Iterator[Started]:
    """A daemon with a model for one attack after another: what one leaves, all see."""
    faults: list[str] = []
    with started(Started(ROOT, CHAT), faults) as daemon:
        yield daemon
    assert faults == []


@pytest.mark.slow
@pytest.mark.short_version
@pytest.mark.parametrize("name", NAMES)
def test_what_one_user_does_takes_nothing_from_another(name, request):
    short = SHORT[name]
    running = request.getfixturevalue("chat") if name in AT_ONE_DAEMON else None
    scene = Scene(ROOT, short.seconds, short.scale, running)
    outcome = try_attack(BY_NAME[name], scene)
    if outcome.verdict is Verdict.SKIPPED:
        pytest.skip(f"{name}: {outcome.reason}")
    failed = [
        check for check in outcome.checks if not check.is_held and not check.is_of_time
    ]
    assert (failed, outcome.reason) == ([], "")
    assert outcome.checks
