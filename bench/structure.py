"""Constrained decoding: what grammars cost beside the model, which is not run.

Given answers are written token by token, as if a model chose them. Prints the time to build
the vocabulary, to compile, and for each token that is chosen; the other load on the machine
is shown, since that spoils the figures.

    python -m bench.structure                        # the embedded model
    python -m bench.structure --model FILE.gguf      # with a larger vocabulary, say
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from bench.quiet import Measured, undisturbed
from inferd.backend.job import Structure
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.load import locate_model
from inferd.worker.llama.gguf.files import ModelFile
from inferd.worker.llama.grammar.build import Grammar, grammar_of
from inferd.worker.llama.grammar.checker import GrammarChecker
from inferd.worker.llama.grammar.compiler import tokenizer_of
from inferd.worker.llama.grammar.constraint import Constraint, GrammarVocabulary
from inferd.worker.llama.library.binding import load_library
from inferd.worker.llama.model.weights import LlamaModel

PERSON: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "email": {"type": "string", "format": "email"},
        "kind": {"enum": ["employee", "customer", "supplier"]},
    },
    "required": ["name", "age", "email", "kind"],
    "additionalProperties": False,
}
ADA: Final = {"name": "Ada", "age": 36, "email": "ada@example.org", "kind": "customer"}
PROSE: Final = "The keeper climbs the stairs each evening and lights the lamp. " * 6
CASES: Final[dict[str, tuple[object, object]]] = {
    "person": (PERSON, ADA),
    "people": ({"type": "array", "items": PERSON, "maxItems": 9}, [ADA] * 6),
    "text": ({"type": "string", "minLength": 9, "maxLength": 999}, PROSE),
    "pattern": (
        {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}( [a-z]{1,9}){20}$"},
        "AB-1234" + " harbour" * 20,
    ),
    "map": (
        {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        {f"field {number}": PROSE[number : number + 30] for number in range(9)},
    ),
}
"""Schemas, each with an answer."""


class Costs(NamedTuple):
    """Seconds of each call while answers were written."""

    mask: list[float]
    accept: list[float]
    forced: list[float]
    n_forced: int
    """Tokens that did not have to be chosen."""
    n_chosen: int


def main() -> int:
    """Measure, print figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:chat", help="or a GGUF file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--answers", type=int, default=5, help="of each schema a round")
    parser.add_argument("--tries", type=int, default=3, help="at a quiet moment")
    arguments = parser.parse_args()
    settings = locate_model(LlamaCppSettings(name="bench", model=arguments.model))
    load_library()
    model = LlamaModel(ModelFile(Path(settings.model)), settings, lambda: None)
    measured = partial(undisturbed, tries=arguments.tries)
    print(json.dumps(figures(model, arguments, measured), indent=2))
    return 0


def figures(
    model: LlamaModel,
    arguments: argparse.Namespace,
    measured: Callable[[Callable[[], Any]], Measured[Any]],
) -> dict[str, object]:
    """Measure everything; give it by name."""
    building = [
        measured(lambda: taken(lambda: GrammarVocabulary(model))) for _ in range(3)
    ]
    vocabulary = GrammarVocabulary(model)
    tokenizer = tokenizer_of(vocabulary.token_table())
    first = taken(lambda: GrammarChecker(tokenizer).check(grammar("text", salt=-1)))
    costs = {
        name: [
            tell(
                name,
                measured(partial(write, model, vocabulary, name, arguments.answers)),
            )
            for _ in range(arguments.rounds)
        ]
        for name in CASES
    }
    compiling = {
        name: [
            taken(partial(vocabulary.compile, grammar(name, salt=salt).source))
            for salt in range(1, 21)
        ]
        for name in CASES
    }
    return {
        "tokens": model.n_vocab,
        "vocabulary_ms": summary([each.value for each in building]),
        "first_trial_ms": round(first * 1e3, 1),
        "compile_ms": {name: summary(times) for name, times in compiling.items()},
        "token_ms": {name: per_token(rounds) for name, rounds in costs.items()},
    }


def grammar(name: str, *, salt: int) -> Grammar:
    """Give a schema's grammar, one that was not compiled before."""
    schema = {"title": str(salt), "allOf": [CASES[name][0]]}
    return grammar_of(Structure(kind="json_schema", source=json.dumps(schema)))


def taken(work: Callable[[], object]) -> float:
    """Do something; give the seconds that it took."""
    began_at = time.perf_counter()
    work()
    return time.perf_counter() - began_at


def write(
    model: LlamaModel, vocabulary: GrammarVocabulary, name: str, n_answers: int
) -> Costs:
    """Write an answer some times; give what each call cost."""
    costs = Costs([], [], [], 0, 0)
    text = json.dumps(CASES[name][1]).encode()
    for _ in range(n_answers):
        constraint = vocabulary.compile(grammar(name, salt=0).source)
        for n_forced in steps(model, constraint, text, costs):
            costs = costs._replace(
                n_forced=costs.n_forced + n_forced, n_chosen=costs.n_chosen + 1
            )
        assert constraint.is_complete  # noqa: S101  # the case is sound
    return costs


def steps(
    model: LlamaModel, constraint: Constraint, rest: bytes, costs: Costs
) -> Iterator[int]:
    """Write a text; give how many tokens were forced after each that was chosen."""
    logits = np.empty(model.n_vocab, np.float32)
    tokens: list[int] = []

    def accept() -> None:
        constraint.accept(tokens)

    def look_ahead() -> None:
        tokens[:] = constraint.lookahead().forced

    while rest:
        logits.fill(0)
        costs.mask.append(taken(partial(constraint.mask, logits)))
        cut = model.tokenize(rest.decode(), parses_special=False)
        tokens[:] = [next(token for token in cut if model.piece(token))]
        costs.accept.append(taken(accept))
        written = model.piece(tokens[0])
        costs.forced.append(taken(look_ahead))
        written += b"".join(map(model.piece, tokens))
        accept()
        assert rest.startswith(written)  # noqa: S101  # so it was the only way
        rest = rest[len(written) :]
        yield len(tokens)


def tell(name: str, measured: Measured[Costs]) -> Measured[Costs]:
    """Print a round."""
    costs = measured.value
    print(
        f"{name}: mask {statistics.median(costs.mask) * 1e6:.0f} µs, "
        f"{costs.n_forced} tokens forced, {costs.n_chosen} chosen, "
        f"other processes {measured.others:.2f} cores",
        file=sys.stderr,
    )
    return measured


def per_token(rounds: list[Measured[Costs]]) -> dict[str, object]:
    """Give what a token costs over all rounds."""
    costs = [each.value for each in rounds]
    n_forced = sum(each.n_forced for each in costs)
    return {
        **{
            call: summary([taken for each in costs for taken in getattr(each, call)])
            for call in ("mask", "accept", "forced")
        },
        "share_forced": round(
            n_forced / (n_forced + sum(c.n_chosen for c in costs)), 2
        ),
        "disturbed_rounds": sum(each.is_disturbed for each in rounds),
    }


def summary(seconds: list[float]) -> dict[str, float]:
    """Give the spread of some times, in milliseconds."""
    ordered = sorted(seconds)
    return {
        "min": round(ordered[0] * 1e3, 3),
        "median": round(statistics.median(ordered) * 1e3, 3),
        "p99": round(ordered[len(ordered) * 99 // 100] * 1e3, 3),
        "max": round(ordered[-1] * 1e3, 3),
    }


if __name__ == "__main__":
    sys.exit(main())
