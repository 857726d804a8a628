"""Explain compile errors: find the request field and the schema at fault."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final

from inferd.dialects.lark import LarkBuilder
from inferd.limits.worker import GRAMMAR_ERROR_PARTS, GRAMMAR_ERROR_S
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.build import Grammar, GrammarPart
from inferd.worker.llama.grammar.json_schema import (
    DEFINITION_KEYWORDS,
    direct_subschemas,
)

Compile = Callable[[str, str], str | None]
"""Takes a source and its request field; returns the compiler's message if it fails."""
_Attempt = Callable[[str], str | None]

_QUOTED: Final = re.compile(r"\n *\d+ \| .*|<non-verbose/>", re.DOTALL)
"""Quoted lines of a grammar, which the client did not write."""
_SCHEMA: Final = re.compile(r"^(at )?\d+\(\d+\): failed to compile JSON schema: ")
_GENERATED_POSITION: Final = re.compile(r"^(at )?\d+\(\d+\): ")
"""Line and column in a generated grammar, which mean nothing to the client."""
_ANSWER: Final = re.compile(r"Parser Error: token .*")
"""Messages that would quote an answer."""
_COMPLEX: Final = re.compile(
    r"(lexer error: too many|parser error: too many|parser error: current row"
    r"|fuel exhausted|lexer precomputation failed|initial lexer configuration).*",
    re.IGNORECASE,
)
_PANIC: Final = re.compile(r"panic: .*")
"""A panic of the compiler, with its own source file."""
_REWORDED: Final = {
    "Unimplemented keys": "not supported",
    "NoExtensionBias": "nothing can satisfy it",
    "oneOf constraints are not supported. Enable 'coerce_one_of' option to approximate "
    "oneOf with anyOf": "oneOf is only supported where its schemas plainly exclude "
    "each other",
}
_MAX_CHARS: Final = 300


class _SearchLimitError(Exception):
    """The search for the fault has used up its time or its number of attempts."""


def explain_error(grammar: Grammar, error: str, compile_: Compile) -> RefusedError:
    """Explain a compile error: the field, the pointer into its schema, and the message.

    Args:
        grammar: a grammar that does not compile.
        error: the compiler's message.
        compile_: compiles a part of the grammar.
    """
    give_up_at = time.process_time() + GRAMMAR_ERROR_S
    left = count(GRAMMAR_ERROR_PARTS, -1)

    def attempt(source: str, field: str) -> str | None:
        if time.process_time() >= give_up_at or not next(left):
            raise _SearchLimitError
        return compile_(source, field)

    with suppress(_SearchLimitError):
        for part in grammar.parts:
            is_all = len(grammar.parts) == 1 and part.source == grammar.source
            found = error if is_all else attempt(part.source, part.field)
            if found:
                return _explain_part(part, found, partial(attempt, field=part.field))
    return RefusedError(f"{grammar.where}: {clean_message(error)}")


def clean_message(error: str) -> str:
    """Shorten a compiler message to one line, without quotes of generated text."""
    line = " ".join(_QUOTED.sub("", error).split())
    line = _ANSWER.sub("a token was chosen that may not follow", line)
    line = _COMPLEX.sub("it is too complex", line)
    line = _PANIC.sub("the compiler crashed on it", line)
    line = _SCHEMA.sub("", line)
    for theirs, ours in _REWORDED.items():
        line = line.replace(theirs, ours)
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}…"


def _explain_part(part: GrammarPart, error: str, compile_: _Attempt) -> RefusedError:
    text = clean_message(error)
    if part.kind != "lark":  # only in Lark are lines and columns the client's own
        text = _GENERATED_POSITION.sub("", text)
    is_schema = part.kind == "json_schema"
    where = (
        _pointer_to(part.source, clean_message(error), compile_) if is_schema else ""
    )
    return RefusedError(f"{part.field}{where}: {text}")


def _pointer_to(source: str, text: str, compile_: _Attempt) -> str:
    """Return the pointer to the innermost schema that fails alone with the same message."""
    here = json.loads(source[source.index("%json ") + len("%json ") :])
    shared = {key: here[key] for key in DEFINITION_KEYWORDS if key in here}
    pointer = ""
    with suppress(_SearchLimitError):
        while inner := next(_failing(here, shared, text, compile_), None):
            step, here = inner
            pointer += step
    return pointer


def _failing(
    schema: dict[str, object], shared: dict[str, object], text: str, compile_: _Attempt
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the direct subschemas that fail with the same message."""
    for step, inner in direct_subschemas(schema):
        lark = LarkBuilder()
        alone = lark.source(lark.json({**shared, **inner}))
        if clean_message(compile_(alone) or "") == text:
            yield step, inner
