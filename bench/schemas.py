"""Answers held to JSON Schemas ÷ free answers, by the same model in the same process.

A free string has nothing that has to follow, so its ratio of tokens per second shows what
masks cost. Everyday objects are half keys and punctuation, which go into a batch at once:
their ratio is of characters per second. Both sides take turns; greedy, one at a time.

    python -m bench.schemas                          # the embedded model
    python -m bench.schemas --model FILE.gguf --chat-template gemma3
"""

import argparse
import json
import os
import statistics
import sys
import time
from functools import partial
from typing import Any, Final, NamedTuple

from bench.quiet import Measured, undisturbed
from inferd.backend.job import GenerateJob, Sampling, Structure, Turn
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.load import locate_model
from inferd.ipc.worker import Step
from inferd.worker.backend import StepOutcome
from inferd.worker.llama.backend import LlamaBackend

MAX_TOKENS: Final = 120
GREEDY: Final = Sampling(temperature=0, top_p=1, top_k=0, seed=0)
FREE: Final = "Tell me about a lighthouse keeper and her ship, in many words."
TEXT: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 900,
    "description": "so long that it never ends by itself",
}


def closed(**properties: Any) -> dict[str, Any]:
    """Write the schema of an object that has these and nothing else."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


NAME: Final = {"type": "string", "maxLength": 24}
EVERYDAY: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "person": (
        "Describe a customer as JSON.",
        closed(
            first_name=NAME,
            last_name=NAME,
            age={"type": "integer", "minimum": 0, "maximum": 120},
            kind={"enum": ["employee", "customer", "supplier"]},
            is_active={"type": "boolean"},
        ),
    ),
    "weather": (
        "Give the weather of Paris as JSON.",
        closed(
            location=closed(city=NAME, country={"type": "string", "maxLength": 20}),
            temperature_celsius={"type": "integer", "minimum": -60, "maximum": 60},
            conditions={"enum": ["sunny", "cloudy", "rainy", "snowy"]},
            wind_speed_kmh={"type": "integer", "minimum": 0, "maximum": 200},
        ),
    ),
    "sentiment": (
        "Classify: I love this lamp.",
        closed(
            sentiment={"enum": ["positive", "neutral", "negative"]},
            confidence_percent={"type": "integer", "minimum": 0, "maximum": 100},
            contains_complaint={"type": "boolean"},
            suggested_department={"enum": ["sales", "support", "billing"]},
        ),
    ),
    "order": (
        "Write an order of two items as JSON.",
        closed(
            order_number={"type": "integer", "minimum": 1, "maximum": 99999},
            items={
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "items": closed(
                    product_name=NAME,
                    quantity={"type": "integer", "minimum": 1, "maximum": 99},
                    unit_price_cents={"type": "integer", "minimum": 0, "maximum": 9999},
                ),
            },
        ),
    ),
    "event": (
        "Write a calendar event as JSON.",
        closed(
            title=NAME,
            start_time={"type": "string", "format": "date-time"},
            duration_minutes={"type": "integer", "minimum": 5, "maximum": 480},
            attendees={
                "type": "array",
                "minItems": 1,
                "maxItems": 2,
                "items": closed(display_name=NAME, is_optional={"type": "boolean"}),
            },
        ),
    ),
}


class Speed(NamedTuple):
    """How fast answers came once their prompts were read."""

    tokens_per_s: float
    characters_per_s: float


def main() -> int:
    """Run the rounds, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:chat", help="or a GGUF file")
    parser.add_argument("--chat-template", help="the family, if its file does not tell")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tries", type=int, default=3, help="at a quiet moment")
    arguments = parser.parse_args()
    backend = load(arguments)
    free = [job(FREE, None)]
    held = {
        "free string": [job(FREE, TEXT)],
        "everyday": [job(*each) for each in EVERYDAY.values()],
    }
    print(json.dumps(compare(backend, free, held, arguments), indent=2))
    return 0


def load(arguments: argparse.Namespace) -> LlamaBackend:
    """Load the model, in this process."""
    settings = locate_model(
        LlamaCppSettings(
            name="bench",
            model=arguments.model,
            n_ctx=1024,
            chat_template=arguments.chat_template,
        )
    )
    told = os.dup(sys.stderr.fileno())
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    backend = LlamaBackend(settings, n_slots=1)
    backend.load(lambda _: None)
    os.dup2(told, sys.stderr.fileno())
    return backend


def job(prompt: str, schema: dict[str, Any] | None) -> GenerateJob:
    """Ask for an answer, held to a schema if there is one."""
    structure = Structure(kind="json_schema", source=json.dumps(schema))
    return GenerateJob(
        turns=[Turn("user", prompt)],
        max_tokens=MAX_TOKENS,
        min_tokens=0 if schema else MAX_TOKENS,
        sampling=GREEDY,
        structure=structure if schema else None,
    )


def compare(
    backend: LlamaBackend,
    free: list[GenerateJob],
    held: dict[str, list[GenerateJob]],
    arguments: argparse.Namespace,
) -> dict[str, object]:
    """Let all take turns; give the ratios of each round to the free answer next to it."""
    ratios: dict[str, list[Measured[Speed]]] = {name: [] for name in held}
    for jobs in (free, *held.values()):
        answers(backend, jobs)  # compile, and warm up
    for number in range(arguments.rounds):
        for name, jobs in held.items():
            measure = partial(ratio, backend, free, jobs)
            measured = undisturbed(measure, tries=arguments.tries)
            print(
                f"round {number + 1}, {name}: {measured.value.tokens_per_s:.3f} in tokens, "
                f"{measured.value.characters_per_s:.3f} in characters, "
                f"others {measured.others:.2f}",
                file=sys.stderr,
            )
            ratios[name].append(measured)
    return {name: figures(found) for name, found in ratios.items()}


def ratio(
    backend: LlamaBackend, free: list[GenerateJob], held: list[GenerateJob]
) -> Speed:
    """Measure free answers before and after held ones; give how these compare."""
    before, of_held, after = (answers(backend, each) for each in (free, held, free))
    return Speed(
        2 * of_held.tokens_per_s / (before.tokens_per_s + after.tokens_per_s),
        2
        * of_held.characters_per_s
        / (before.characters_per_s + after.characters_per_s),
    )


def answers(backend: LlamaBackend, jobs: list[GenerateJob]) -> Speed:
    """Write some answers, one after the other."""
    n_tokens = n_characters = 0
    seconds = 0.0
    for each in jobs:
        backend.start(1, backend.prepare(each))
        step = backend.step()  # the prompt; what it gives is decoded by the next
        began_at = time.perf_counter()
        written = pieces(step)
        while backend.is_busy:
            written += pieces(backend.step())
        seconds += time.perf_counter() - began_at
        n_tokens += len(written)
        n_characters += len(b"".join(written).decode("utf-8", "replace"))
    return Speed(n_tokens / seconds, n_characters / seconds)


def pieces(outcomes: list[StepOutcome]) -> list[bytes]:
    """Give what a step wrote, one for each token."""
    [outcome] = outcomes
    return [piece for _, piece in outcome.pieces] if isinstance(outcome, Step) else []


def figures(measured: list[Measured[Speed]]) -> dict[str, object]:
    """Sum up the rounds."""
    return {
        "tokens": spread([each.value.tokens_per_s for each in measured]),
        "characters": spread([each.value.characters_per_s for each in measured]),
        "disturbed_rounds": sum(each.is_disturbed for each in measured),
    }


def spread(values: list[float]) -> dict[str, float]:
    """Give the least, the median and the greatest."""
    return {
        "min": round(min(values), 3),
        "median": round(statistics.median(values), 3),
        "max": round(max(values), 3),
    }


if __name__ == "__main__":
    sys.exit(main())
