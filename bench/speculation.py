"""Guessing ahead: answers with it ÷ the same answers without, in one process.

Off, lookup and, with ``--draft``, a draft model take turns. Prints each round's rates and
the ratios to off, and how often the answers were the same; the other load on the machine is
shown, since it spoils the figures.

    python -m bench.speculation                        # the embedded chat model
    python -m bench.speculation --model LARGE.gguf --draft SMALL.gguf
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from bench.quiet import Measured, undisturbed
from inferd.backend.job import GenerateJob, Sampling, Turn
from inferd.config.choices import Family, Speculation
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.load import locate_model
from inferd.ipc.worker import Step
from inferd.worker.llama.backend import LlamaBackend

TEXT: Final = (
    "The keeper climbs the stairs each evening and lights the lamp. He carries oil in a "
    "tin can, and bread in his coat. From the gallery he sees the boats come home, one "
    "after another, and counts them. When the fog comes he rings the bell until morning. "
    "On Sundays his sister rows over with letters, potatoes and news of the village."
)
CODE: Final = """def area(width, height):
    if width < 0:
        raise ValueError("width is negative")
    if height < 0:
        raise ValueError("height is negative")
    return width * height


def volume(width, height, depth):
    if depth < 0:
        raise ValueError("depth is negative")
    return area(width, height) * depth
"""
PROMPTS: Final = {
    "repeat": f"Repeat the following text exactly, word for word:\n\n{TEXT}",
    "edit": f"Rewrite this Python code with `height` renamed to `length`:\n\n{CODE}",
    "free": "Write a long story about a lighthouse keeper and the sea.",
}


class Run(NamedTuple):
    """Some answers at once."""

    rate: float
    """Tokens a second after the first, of all of them."""
    answers: Mapping[int, bytes]
    drafted: int
    accepted: int


def main() -> int:
    """Measure in turns, print figures."""
    arguments = read_arguments()
    stderr = os.dup(sys.stderr.fileno())
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # llama.cpp's
    words = os.fdopen(stderr, "w", buffering=1)
    ways: list[Speculation] = ["off", "lookup"]
    if arguments.draft:
        ways.append("draft")
    backends = {way: load(way, arguments) for way in ways}
    figures: dict[str, object] = {}
    for prompt, text in PROMPTS.items():
        rounds = []
        for number in range(arguments.rounds + 1):  # the first one warms up
            turn = ways[number % len(ways) :] + ways[: number % len(ways)]
            round_ = {
                way: undisturbed(
                    partial(run, backends[way], text, arguments), tries=arguments.tries
                )
                for way in turn
            }
            print(f"{prompt}: {told(round_)}", file=words)
            rounds.append(round_)
        figures[prompt] = {way: summary(rounds[1:], way) for way in ways}
    print(json.dumps(figures, indent=2))
    return 0


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:chat", help="or a GGUF file")
    parser.add_argument("--draft", help="a GGUF file with the same vocabulary")
    parser.add_argument("--family", help="of a model without a chat template")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument(
        "--streams", type=int, default=1, help="the same answer so often"
    )
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tries", type=int, default=2, help="at a quiet moment")
    return parser.parse_args()


def load(way: Speculation, arguments: argparse.Namespace) -> LlamaBackend:
    """Load the model with a way of guessing."""
    family: Family | None = arguments.family
    settings = locate_model(
        LlamaCppSettings(
            name="bench",
            model=arguments.model,
            n_ctx=2048,
            n_threads=arguments.threads,
            chat_template=family,
            speculation=way,
            draft_model=arguments.draft if way == "draft" else None,
        )
    )
    backend = LlamaBackend(settings, n_slots=arguments.streams)
    backend.load(lambda _: None)
    return backend


def run(backend: LlamaBackend, text: str, arguments: argparse.Namespace) -> Run:
    """Write the likeliest answer to a prompt, as often as asked, at once."""
    job = GenerateJob(
        turns=[Turn("user", text)],
        max_tokens=arguments.tokens,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
        cache="off",
    )
    for ticket in range(arguments.streams):
        backend.start(ticket, backend.prepare(job))
    answers = dict.fromkeys(range(arguments.streams), b"")
    first_at: float | None = None
    n_written = drafted = accepted = 0
    while backend.is_busy:
        for step in backend.step():
            if not isinstance(step, Step):
                raise TypeError(step)
            if first_at is not None:
                n_written += len(step.pieces)
            for ticket, piece in step.pieces:
                answers[ticket] += piece
            drafted += sum(each.drafted_tokens for _, each in step.drafted)
            accepted += sum(each.accepted_tokens for _, each in step.drafted)
            if first_at is None and all(answers.values()):
                first_at = time.perf_counter()
    seconds = time.perf_counter() - (first_at or 0)
    return Run(n_written / seconds, answers, drafted, accepted)


def told(round_: Mapping[Speculation, Measured[Run]]) -> str:
    """Put a round into words."""
    return ", ".join(
        f"{way} {each.value.rate:.1f} tokens/s ({each.value.accepted} of "
        f"{each.value.drafted} right, others {each.others:.2f} cores)"
        for way, each in sorted(round_.items())
    )


def summary(
    rounds: list[dict[Speculation, Measured[Run]]], way: Speculation
) -> dict[str, object]:
    """Sum up the rounds of one way, beside those without any."""
    runs = [each[way].value for each in rounds]
    ratios = sorted(each[way].value.rate / each["off"].value.rate for each in rounds)
    drafted = sum(each.drafted for each in runs)
    return {
        "tokens_per_s": round(statistics.median(each.rate for each in runs), 1),
        "ratio": {
            "min": round(ratios[0], 2),
            "median": round(statistics.median(ratios), 2),
            "max": round(ratios[-1], 2),
        },
        "share_accepted": round(sum(each.accepted for each in runs) / drafted, 2)
        if drafted
        else None,
        "drafted_a_round": drafted / len(rounds),
        "same_answers": sum(
            each[way].value.answers == each["off"].value.answers for each in rounds
        ),
        "disturbed_rounds": sum(each[way].is_disturbed for each in rounds),
    }


if __name__ == "__main__":
    sys.exit(main())
