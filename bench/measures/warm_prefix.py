"""A conversation goes on: time to the first token where most of the prompt is known."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Final

from bench.figures import Goal, Reading
from bench.lab import Lab, Measure, Take, in_turns
from bench.load.clients import Clients
from bench.load.scene import Answer, Ask
from bench.sides import chat_sides, lengths
from bench.streams import first_token_s

N_SLOTS: Final = 2
MARGIN_TOKENS: Final = 2048
"""Room for the turns of all rounds."""
ANSWER_TOKENS: Final = 16
SEED: Final = 20_261_121


class Talk:
    """A conversation with one side."""

    def __init__(self, clients: Clients, prefix: str) -> None:
        self._clients = clients
        self._turns = [("user", f"{prefix}\nWhat is this about?")]

    def ask(self, question: str = "") -> Answer:
        """Say something; give the answer, which the next turn repeats."""
        if question:
            self._turns.append(("user", question))
        answer = self._clients.ask(Ask(turns=self._turns, max_tokens=ANSWER_TOKENS))
        self._turns.append(("assistant", answer.text))
        return answer


@contextmanager
def warm_prefix(lab: Lab) -> Iterator[Take]:
    """Have one long conversation with every side, a turn a round."""
    n_ctx = lab.sizes.shared_prefix + MARGIN_TOKENS
    turns = count(1)
    with chat_sides(lab, n_slots=N_SLOTS, n_ctx=n_ctx) as sides:
        prefix = lengths(sides).text(lab.sizes.shared_prefix, SEED)
        talks = {name: Talk(clients, prefix) for name, clients in sides.items()}
        cold = {name: first_token_s(talk.ask()) * 1e3 for name, talk in talks.items()}

        def take(number: int) -> Reading:
            question = f"And what comes {next(turns)} lines after that?"
            return next_turn(number, talks, question, cold)

        take(0)
        yield take


def next_turn(
    number: int, talks: Mapping[str, Talk], question: str, cold: Mapping[str, float]
) -> Reading:
    """Ask every side; give its milliseconds."""
    answers = in_turns(
        number, {name: partial(talk.ask, question) for name, talk in talks.items()}
    )
    return Reading(
        {name: first_token_s(answer) * 1e3 for name, answer in answers.items()},
        {
            "cold_ms": cold,
            "prompt_tokens": {name: each.n_prompt for name, each in answers.items()},
            "cached_tokens": {name: each.n_cached for name, each in answers.items()},
        },
    )


WARM_PREFIX: Final = Measure(
    key="warm_prefix_ttft",
    title="first token of a later turn, 2,000 tokens shared",
    unit="ms",
    is_more_better=False,
    open=warm_prefix,
    goals=(Goal("ratio_peer", at_most=1.0),),
    reasons={"raw": "llama.cpp's benchmarks keep no prompts"},
)
