"""Answers held to JSON Schemas: characters per second, beside those of free ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, OneSide, Take, reading
from bench.load.clients import Clients
from bench.load.scene import Answer, Ask
from bench.schemas import EVERYDAY, FREE
from bench.sides import chat_sides
from bench.streams import character_rate

N_CTX: Final = 1024


@contextmanager
def json_schema(lab: Lab) -> Iterator[Take]:
    """Have every side write five objects, and our own some text as well."""
    n_tokens = lab.sizes.held_tokens
    held = [
        Ask(
            turns=[("user", prompt)],
            max_tokens=n_tokens,
            schema=schema,
            is_forced=False,
        )
        for prompt, schema in EVERYDAY.values()
    ]
    free = [Ask(turns=[("user", FREE)], max_tokens=n_tokens)]
    with chat_sides(lab, n_slots=1, n_ctx=N_CTX) as sides:
        works = {name: partial(ask_all, each, held) for name, each in sides.items()}
        if "inferd" in sides:
            works["free"] = partial(ask_all, sides["inferd"], free)
        if "peer" in sides:
            works["peer_free"] = partial(ask_all, sides["peer"], free)

        def take(number: int) -> Reading:
            return reading(number, works)

        take(0)
        yield take


def ask_all(clients: Clients, asks: Sequence[Ask]) -> OneSide:
    """Ask one after another."""
    answers = [clients.ask(ask) for ask in asks]
    return OneSide(character_rate(answers), beside(answers))


def beside(answers: Sequence[Answer]) -> dict[str, float]:
    """Give the same with prompts and compiling, and the size of it."""
    seconds = sum(answer.times[-1] - answer.sent_at for answer in answers)
    n_characters = sum(len(answer.text) for answer in answers)
    return {
        "whole_characters_per_s": n_characters / seconds,
        "characters": n_characters,
        "tokens": sum(answer.n_tokens for answer in answers),
    }


JSON_SCHEMA: Final = Measure(
    key="json_schema",
    title="five answers held to JSON Schemas",
    unit="characters/s",
    is_more_better=True,
    open=json_schema,
    goals=(
        Goal("ratio_free", at_least=1.4),
        Goal("ratio_peer", at_least=1.4),
    ),
    reasons={"raw": "llama.cpp's benchmarks hold answers to nothing"},
    also={"whole_characters_per_s": "the same, with prompts and compiling"},
)
