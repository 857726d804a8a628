"""Build the grammar of an answer: an optional thought, then tool calls or a structure."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from inferd.backend.job import GenerateJob, Structure, ToolSpec
from inferd.dialects.dialect import Dialect, Region
from inferd.dialects.lark import LarkBuilder, one_of
from inferd.dialects.schema.reader import parse_json_strict
from inferd.dialects.schema.subset import UnsupportedSchemaError
from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.gbnf import gbnf_to_lark
from inferd.worker.llama.grammar.json_schema import read_schema, refuse_inexact_numbers

ALL_FIELDS: Final = "response_format and tools"
_HEADER: Final = '%llguidance {"no_forcing": true}\n'
"""Without this, llguidance computes all forced text before it returns a mask, without a
limit: a schema of ten kilobytes can take a minute."""
_CLIENT_GRAMMAR: Final = "structure"
_UNSUPPORTED_OPTIONS: Final = re.compile(
    r"""(?:\#|//)[^\n]*+
    | "(?:[^"\\]|\\.)*+"?
    | /(?:[^/\\]|\\.)*+/?
    | <[^<>\s]++>
    | \b(stop|stop_capture|temperature)[ \t]*=""",
    re.VERBOSE | re.DOTALL,
)
"""Rule options that need an engine with backtracking or per-rule sampling (group 1), and
everything that may contain text that looks like one: comments, strings, patterns, special
tokens. An equals sign occurs nowhere else."""

_TOKEN: Final = re.compile(
    r"""(?P<other>"(?:[^"\\\n]|\\.)*+"? | //[^\n]*+ | /(?:[^/\\\n]|\\.)++/?)
    | <\[(?P<ids>[^<\]\n]*+)\]> | (?P<name><[^<>\s]++>)""",
    re.VERBOSE,
)
"""Special tokens in a Lark grammar, and text that may contain lookalikes."""
_IDS: Final = re.compile(r"0*([0-9]{1,18})(?:-0*([0-9]{1,18}))?")
"""A token id or a range of them; no vocabulary has longer ids."""


@dataclass(frozen=True)
class GrammarPart:
    """A part of a grammar that comes from the client."""

    field: str
    """The request field that it comes from."""
    kind: Literal["json_schema", "regex", "gbnf", "lark", "tool"]
    source: str
    """A grammar of this part alone."""


@dataclass(frozen=True)
class Grammar:
    """A grammar for llguidance, and the client's parts that it is made of."""

    source: str
    parts: tuple[GrammarPart, ...] = ()

    @property
    def where(self) -> str:
        """The request field that it comes from, or a name for all of them."""
        return self.parts[0].field if len(self.parts) == 1 else ALL_FIELDS


def answer_grammar(
    dialect: Dialect,
    job: GenerateJob,
    special: Mapping[str, int],
    *,
    open_thought: str,
) -> Grammar:
    """Build the grammar of a job's answer.

    Args:
        dialect: the model's dialect.
        job: a job with a structure, or one that must be answered with a call.
        special: ids of the model's special tokens by their texts.
        open_thought: the marker of the thought that the prompt ends inside, if any.

    Raises:
        RefusedError: the job's structure is not a valid grammar, the family's calls cannot
            be constrained to it, or it would not be enforced.
    """
    lark = LarkBuilder(special)
    tools = callable_tools(job)
    parts = _parts(dialect, job, special, tools)
    thought = _thought(lark, dialect, open_thought, may_think=job.thinks)
    bodies: list[str] = []
    client_grammar: str | None = None
    if job.structure is not None and job.has_structured_text:
        body, client_grammar = _structure_expression(lark, job.structure)
        if job.structure.in_v1:  # v1 answers are plain text
            return Grammar(_assemble(lark, body, client_grammar), parts)
        bodies.append(f"{_before_text(lark, dialect)} {body}")
    if tools:
        bodies.append(dialect.write_calls(lark, tools))
    return Grammar(
        _assemble(lark, f"{thought} {one_of(bodies)}", client_grammar), parts
    )


def grammar_of(structure: Structure) -> Grammar:
    """Build the grammar of a structure alone.

    Raises:
        RefusedError: it is not a valid grammar.
    """
    lark = LarkBuilder()
    source = _assemble(lark, *_structure_expression(lark, structure))
    return Grammar(source, (GrammarPart(structure.field, structure.kind, source),))


def callable_tools(job: GenerateJob) -> Sequence[ToolSpec]:
    """Return the tools that a constrained answer may call."""
    match job.tool_choice.kind:
        case "none":
            return ()
        case "named":
            return [tool for tool in job.tools if tool.name == job.tool_choice.name]
        case "auto" | "required":
            return job.tools


def may_be_call_or_text(job: GenerateJob) -> bool:
    """Tell whether the answer is either a call or text of a regex, GBNF or Lark grammar.

    JSON schemas do not count: their lexemes are those of calls, which never conflict.
    """
    structure = job.structure
    is_text = structure is not None and structure.kind != "json_schema"
    return is_text and bool(callable_tools(job)) and not job.tool_choice.is_forced


def refuse_tool_names(dialect: Dialect, job: GenerateJob) -> None:
    """Refuse tools whose names the family's call syntax cannot hold.

    Raises:
        RefusedError: naming the tool.
    """
    for tool in job.tools if job.tool_choice.kind != "none" else ():
        if not dialect.can_call(tool.name):
            raise RefusedError(
                f"tools: the calls of {dialect.name} models cannot hold the name "
                f"{json.dumps(tool.name, ensure_ascii=False)}"
            )


def refuse_end_tokens(structure: Structure, ends: Mapping[str, int]) -> None:
    """Refuse a Lark grammar that names a token which ends the answer.

    Args:
        structure: the structure of the text.
        ends: ids of the tokens that end a turn, by their texts.

    Raises:
        RefusedError: naming the line.
    """
    if structure.kind != "lark":
        return
    for found in _TOKEN.finditer(structure.source):
        ids = found["ids"]
        if found["name"] in ends or (ids is not None and _holds_any(ids, ends)):
            line = structure.source.count("\n", 0, found.start()) + 1
            raise RefusedError(
                f"{structure.field}: line {line}: {found[0]} may be a token that ends "
                "the answer"
            )


def _holds_any(ids: str, ends: Mapping[str, int]) -> bool:
    """Tell whether a list of ids and ranges, perhaps negated, contains any of the tokens."""
    listed = [_IDS.fullmatch(each) for each in ids.strip("^").split(",")]
    ranges = [
        range(int(each[1]), int(each[2] or each[1]) + 1) for each in listed if each
    ]
    is_inside = [any(token in each for each in ranges) for token in ends.values()]
    return not all(is_inside) if ids.startswith(("^", "*")) else any(is_inside)


def _structure_expression(
    lark: LarkBuilder, structure: Structure
) -> tuple[str, str | None]:
    """Return an expression, and the client's grammar that it refers to, if any."""
    match structure.kind:
        case "json_schema":
            schema = read_schema(structure.field, structure.source)
            refuse_inexact_numbers(structure.field, schema)
            return lark.json(schema), None
        case "regex":
            return lark.pattern(structure.source), None
        case "gbnf":
            return f"@{_CLIENT_GRAMMAR}", _translate_gbnf(structure)
        case "lark":
            return f"@{_CLIENT_GRAMMAR}", _check_lark(structure)


def _translate_gbnf(structure: Structure) -> str:
    try:
        return gbnf_to_lark(structure.source)
    except RefusedError as error:
        raise RefusedError(f"{structure.field}: {error}") from error


def _check_lark(structure: Structure) -> str:
    """Refuse options of a Lark grammar that are not supported."""
    source = structure.source
    options = (each for each in _UNSUPPORTED_OPTIONS.finditer(source) if each[1])
    if found := next(options, None):
        line = source.count("\n", 0, found.start()) + 1
        raise RefusedError(
            f"{structure.field}: line {line}: {found[1]} is not supported"
        )
    return source


def _thought(
    lark: LarkBuilder, dialect: Dialect, opened: str, *, may_think: bool
) -> str:
    """Match the thought that may come first."""
    for region in dialect.thoughts:
        if opened in region.begins:
            return _inside(lark, region)
    if not (may_think and dialect.thoughts):
        return ""
    whole = [f"{_begin(lark, each)} {_inside(lark, each)}" for each in dialect.thoughts]
    return f"{one_of(whole)}?"


def _inside(lark: LarkBuilder, region: Region) -> str:
    """Match a thought after its opening marker."""
    end = min(region.ends, key=len)
    longer = [each.removeprefix(end) for each in region.ends if each.startswith(end)]
    after = _any_of(lark, filter(None, longer))
    return f"{lark.until(end)} {after}"


def _begin(lark: LarkBuilder, region: Region) -> str:
    """Match a region's opening marker, in its shortest spellings: the rest may be text."""
    begins = region.begins
    shortest = [
        each
        for each in begins
        if not any(each != other and each.startswith(other) for other in begins)
    ]
    return one_of([lark.marker(each) for each in shortest])


def _before_text(lark: LarkBuilder, dialect: Dialect) -> str:
    """Match the marker that a family puts before text, if it has one."""
    begins = [
        begin
        for region in dialect.regions
        if region.holds == "text" and not region.keeps_begin
        for begin in region.begins
    ]
    return _any_of(lark, begins)


def _any_of(lark: LarkBuilder, markers: Iterable[str]) -> str:
    """Match one of several markers, or nothing."""
    expressions = [lark.marker(each) for each in markers]
    return f"{one_of(expressions)}?" if expressions else ""


def _parts(
    dialect: Dialect,
    job: GenerateJob,
    special: Mapping[str, int],
    tools: Sequence[ToolSpec],
) -> tuple[GrammarPart, ...]:
    lark = LarkBuilder(special)
    parts: list[GrammarPart] = []
    if job.structure is not None and job.has_structured_text:
        parts += grammar_of(job.structure).parts
    for index, tool in enumerate(job.tools):
        if tool in tools:
            field = f"tools[{index}].input_schema"
            refuse_inexact_numbers(field, parse_json_strict(tool.input_schema))
            lark = lark.fresh()
            try:
                source = _assemble(lark, dialect.write_calls(lark, [tool]))
            except UnsupportedSchemaError as error:
                raise RefusedError(f"{field}{error}") from error
            parts.append(GrammarPart(field, "tool", source))
    return tuple(parts)


def _assemble(lark: LarkBuilder, start: str, client_grammar: str | None = None) -> str:
    """Assemble a grammar with the one that it refers to; llguidance takes several as JSON."""
    main = _HEADER + lark.source(start)
    if client_grammar is None:
        return main
    both = [
        {"lark_grammar": main},
        {"name": _CLIENT_GRAMMAR, "lark_grammar": client_grammar},
    ]
    return json.dumps({"grammars": both})
