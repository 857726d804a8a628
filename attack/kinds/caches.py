"""What one user can find out of another by what the daemon keeps."""

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from attack.asking import Line, Question, plain, typed
from attack.load import CHAT
from attack.measures import DONE, Sample
from attack.probe import Probe
from attack.scene import Scene, SkippedError, person, victim
from attack.target import is_root

KIND: Final = "caches"
N_TRIALS: Final = 40
LEAST_RIGHT: Final = 31
"""Of ``N_TRIALS``: who draws lots is right as often in fewer than 1 of 2000 runs."""
PATIENCE_S: Final = 30.0
N_PROPERTIES: Final = 60
COMMON_TOKENS: Final = 40
"""With which all of these prompts begin, at most: anybody's own template."""
WORDS: Final = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron")

Make = Callable[[str], Question]


def attacks() -> Iterator[Probe]:
    """Give all of them."""
    made: dict[str, tuple[str, Make]] = {
        "schemas": ("which of two schemas another user has used", schema),
        "tools": ("which of two tools another user has called", tool),
        "grammars": ("which of two grammars another user has used", grammar),
        "prompts": ("which of two prompts another user has sent", prompt),
        "errors": ("which of two broken schemas another user has sent", broken),
    }
    for name, (about, make) in made.items():
        yield Probe(
            name=f"guess-{name}",
            kind=KIND,
            about=f"guess by time, in {N_TRIALS} trials, {about}",
            try_in=partial(_guess, make=make),
        )


def schema(word: str, **fields: Any) -> Question:
    """Ask for JSON that is held to a schema with a word in it."""
    names = [f"{word}_{number}" for number in range(N_PROPERTIES)]
    made = {
        "type": "object",
        "properties": {name: {"type": "string", "maxLength": 9} for name in names},
        "required": names,
        "additionalProperties": False,
        **fields,
    }
    return typed(
        "x", response_format={"type": "json_schema", "schema": made}, max_tokens=0
    )


def tool(word: str) -> Question:
    """Have a tool called with a word in its schema."""
    names = {f"{word}_{number}": {"type": "string"} for number in range(N_PROPERTIES)}
    found = {"type": "object", "properties": names, "required": [*names]}
    offered = [{"name": "f", "description": "", "input_schema": found}]
    return typed("x", tools=offered, tool_choice="required", max_tokens=0)


def grammar(word: str) -> Question:
    """Ask for text that is held to a grammar with a word in it."""
    rules = [f'r{number} ::= "{word}{number}" [a-z]*' for number in range(400)]
    root = " | ".join(f"r{number}" for number in range(400))
    return plain("x", grammar="\n".join([f"root ::= {root}", *rules]), max_tokens=0)


def prompt(word: str) -> Question:
    """Have a prompt read that has a word over and over."""
    return plain(f"{word} " * 40, max_tokens=1, temperature=0)


def broken(word: str) -> Question:
    """Ask for JSON that is held to a schema that is refused at its end."""
    return schema(word, **{"not": {}})


def _guess(scene: Scene, make: Make) -> None:
    if not is_root():
        raise SkippedError("needs root, to be two users")
    n_trials = max(2, round(N_TRIALS * scene.scale))
    n_right = n_cached = 0
    with scene.target(CHAT, is_any=True) as target, victim() as one, person() as other:
        for _ in range(n_trials):
            pair = [
                make(f"{secrets.choice(WORDS)}{secrets.token_hex(8)}") for _ in "ab"
            ]
            used = secrets.randbelow(2)
            [[sample, *_]] = one.call(_all, target.directory, [pair[used]])
            if sample.code not in (DONE, "invalid_request"):
                raise AssertionError(f"the victim's request ended in {sample.code}")
            order = [0, 1] if secrets.randbelow(2) else [1, 0]
            found = other.call(_all, target.directory, [pair[each] for each in order])
            seconds = {
                each: told[0].seconds for each, told in zip(order, found, strict=True)
            }
            n_cached += sum(told[1] > COMMON_TOKENS for told in found)
            n_right += min(seconds, key=seconds.__getitem__) == used
    scene.codes = {"right": n_right, "wrong": n_trials - n_right}
    if n_trials == N_TRIALS:
        is_lot = n_trials - LEAST_RIGHT < n_right < LEAST_RIGHT
        scene.require_in_time(
            "time tells no more than a lot",
            is_lot,
            f"{n_right} of {n_trials} are right",
        )
    scene.require(
        "nothing of the other's is told as cached",
        not n_cached,
        f"{n_cached} of {2 * n_trials} answers say that their prompt was",
    )


def _all(
    pipe: Connection, directory: Path, questions: Sequence[Question]
) -> list[tuple[Sample, int]]:
    """Ask one question after another; give how each ended, and its cached tokens."""
    found = []
    for question in questions:
        line = Line(directory / question.leaf, PATIENCE_S)
        sample = line.ask(question)
        line.close()
        found.append((sample, cached_tokens(line.frames)))
    return found


def cached_tokens(frames: Sequence[bytes]) -> int:
    """Read how much of a prompt was in a cache."""
    for frame in frames:
        if frame:
            usage = json.loads(frame).get("usage") or {}
            if "cached_tokens" in usage:
                return int(usage["cached_tokens"])
    return 0
