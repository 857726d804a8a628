"""Find what in a request keeps a grammar from compiling, and word it."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final

from inferd.dialects.lark import Lark
from inferd.worker.backend import RefusedError
from inferd.worker.limits import GRAMMAR_BLAME_PARTS, GRAMMAR_BLAME_S
from inferd.worker.llama.grammar import Grammar, Part
from inferd.worker.llama.places import SHARED, schemas_in

Compile = Callable[[str, str], str | None]
"""Takes a source and the field that it is from; gives the compiler's words where it does
not compile."""
_Attempt = Callable[[str], str | None]

_QUOTED: Final = re.compile(r"\n *\d+ \| .*|<non-verbose/>", re.DOTALL)
"""Lines of a grammar that nobody but us wrote."""
_SCHEMA: Final = re.compile(r"^(at )?\d+\(\d+\): failed to compile JSON schema: ")
_OURS: Final = re.compile(r"^(at )?\d+\(\d+\): ")
"""A place in a grammar; clients know only those in their own."""
_ANSWER: Final = re.compile(r"Parser Error: token .*")
"""Words that would quote an answer."""
_COMPLEX: Final = re.compile(
    r"(lexer error: too many|parser error: too many|parser error: current row"
    r"|fuel exhausted|lexer precomputation failed|initial lexer configuration).*",
    re.IGNORECASE,
)
_PANIC: Final = re.compile(r"panic: .*")
"""Where the compiler found itself at fault, and in what file of its own."""
_REWORDED: Final = {
    "Unimplemented keys": "not supported",
    "NoExtensionBias": "nothing can satisfy it",
    "oneOf constraints are not supported. Enable 'coerce_one_of' option to approximate "
    "oneOf with anyOf": "oneOf is only supported where its schemas plainly exclude "
    "each other",
}
_MAX_CHARS: Final = 300


class _OverError(Exception):
    """The search has taken what it may."""


def blamed(grammar: Grammar, error: str, compile_: Compile) -> RefusedError:
    """Word a failure: the field, the place in its schema, and what is wrong there.

    Args:
        grammar: that does not compile.
        error: the compiler's words.
        compile_: compiles a part of it.
    """
    give_up_at = time.process_time() + GRAMMAR_BLAME_S
    left = count(GRAMMAR_BLAME_PARTS, -1)

    def attempt(source: str, field: str) -> str | None:
        if time.process_time() >= give_up_at or not next(left):
            raise _OverError
        return compile_(source, field)

    with suppress(_OverError):
        for part in grammar.parts:
            is_all = len(grammar.parts) == 1 and part.source == grammar.source
            found = error if is_all else attempt(part.source, part.field)
            if found:
                return _worded_in(part, found, partial(attempt, field=part.field))
    return RefusedError(f"{grammar.where}: {worded(error)}")


def worded(error: str) -> str:
    """Make one line of the compiler's words, without what nobody wrote."""
    line = " ".join(_QUOTED.sub("", error).split())
    line = _ANSWER.sub("a token was chosen that may not follow", line)
    line = _COMPLEX.sub("it is too complex", line)
    line = _PANIC.sub("the compiler crashed on it", line)
    line = _SCHEMA.sub("", line)
    for theirs, ours in _REWORDED.items():
        line = line.replace(theirs, ours)
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}…"


def _worded_in(part: Part, error: str, compile_: _Attempt) -> RefusedError:
    text = worded(error)
    if part.kind != "lark":  # the one whose places are the client's own
        text = _OURS.sub("", text)
    is_schema = part.kind == "json_schema"
    where = _place(part.source, worded(error), compile_) if is_schema else ""
    return RefusedError(f"{part.field}{where}: {text}")


def _place(source: str, text: str, compile_: _Attempt) -> str:
    """Find the innermost schema that fails alone in the same way; give its pointer."""
    here = json.loads(source[source.index("%json ") + len("%json ") :])
    shared = {key: here[key] for key in SHARED if key in here}
    pointer = ""
    with suppress(_OverError):
        while inner := next(_failing(here, shared, text, compile_), None):
            step, here = inner
            pointer += step
    return pointer


def _failing(
    schema: dict[str, object], shared: dict[str, object], text: str, compile_: _Attempt
) -> Iterator[tuple[str, dict[str, object]]]:
    """Give the schemas right in a schema that fail in the same way."""
    for step, inner in schemas_in(schema):
        lark = Lark()
        alone = lark.source(lark.json({**shared, **inner}))
        if worded(compile_(alone) or "") == text:
            yield step, inner
