"""Say what an answer may be, as a grammar: a thought, then calls or a structure."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from inferd.dialects.dialect import Dialect, Region
from inferd.dialects.enforced import UnenforceableError
from inferd.dialects.lark import Lark, either
from inferd.dialects.schemas import decoded
from inferd.job import GenerateJob, Structure, Tool
from inferd.worker.backend import RefusedError
from inferd.worker.llama.gbnf import lark_of
from inferd.worker.llama.numbers import read_schema, refuse_numbers

ALL_FIELDS: Final = "response_format and tools"
_HEADER: Final = '%llguidance {"no_forcing": true}\n'
"""Without this, llguidance works out all text that has to follow before it gives a mask.
That has no bound: a schema of ten kilobytes can hold it up for a minute."""
_THEIRS: Final = "structure"
_UNFIT: Final = re.compile(
    r"""(?:\#|//)[^\n]*+
    | "(?:[^"\\]|\\.)*+"?
    | /(?:[^/\\]|\\.)*+/?
    | <[^<>\s]++>
    | \b(stop|stop_capture|temperature)[ \t]*=""",
    re.VERBOSE | re.DOTALL,
)
"""Options of rules that only an engine that goes back on tokens could honour, or one
that samples anew for each rule; and all that may hold what looks like one: comments,
texts, patterns, special tokens. An equals sign stands nowhere else."""

_TOKEN: Final = re.compile(
    r"""(?P<other>"(?:[^"\\\n]|\\.)*+"? | //[^\n]*+ | /(?:[^/\\\n]|\\.)++/?)
    | <\[(?P<ids>[^<\]\n]*+)\]> | (?P<name><[^<>\s]++>)""",
    re.VERBOSE,
)
"""Special tokens in a grammar of Lark, and where what looks like one is none."""
_IDS: Final = re.compile(r"0*([0-9]{1,18})(?:-0*([0-9]{1,18}))?")
"""One or several ids of tokens; no vocabulary has any that are longer."""


@dataclass(frozen=True)
class Part:
    """What a client wrote of a grammar."""

    field: str
    """Where."""
    kind: Literal["json_schema", "regex", "gbnf", "lark", "tool"]
    source: str
    """A grammar of it alone."""


@dataclass(frozen=True)
class Grammar:
    """A grammar in llguidance's terms, and what it is made of."""

    source: str
    parts: tuple[Part, ...] = ()

    @property
    def where(self) -> str:
        """The field that it comes from, or a word for all of them."""
        return self.parts[0].field if len(self.parts) == 1 else ALL_FIELDS


def answer_grammar(
    dialect: Dialect,
    job: GenerateJob,
    special: Mapping[str, int],
    *,
    open_thought: str,
) -> Grammar:
    """Say what the answer to a job may be.

    Args:
        dialect: of the model.
        job: which asks for a structure, or has to be answered with a call.
        special: the model's special tokens, by their texts.
        open_thought: the marker of the thought that the prompt ends inside, if any.

    Raises:
        RefusedError: what it asks for is no grammar, or one that the family's calls
            cannot be held to, or that would not be kept.
    """
    lark = Lark(special)
    tools = tools_of(job)
    parts = _parts(dialect, job, special, tools)
    thought = _thought(lark, dialect, open_thought, may_think=job.thinks)
    bodies: list[str] = []
    theirs: str | None = None
    if job.structure is not None and job.has_structured_text:
        body, theirs = _structured(lark, job.structure)
        if job.structure.in_v1:  # where all is text
            return Grammar(_whole(lark, body, theirs), parts)
        bodies.append(f"{_before_text(lark, dialect)} {body}")
    if tools:
        bodies.append(dialect.write_calls(lark, tools))
    return Grammar(_whole(lark, f"{thought} {either(bodies)}", theirs), parts)


def grammar_of(structure: Structure) -> Grammar:
    """Say what a text of a structure may be.

    Raises:
        RefusedError: what it asks for is no grammar.
    """
    lark = Lark()
    source = _whole(lark, *_structured(lark, structure))
    return Grammar(source, (Part(structure.field, structure.kind, source),))


def tools_of(job: GenerateJob) -> Sequence[Tool]:
    """Give the tools that a held answer may call; none where it cannot call any."""
    match job.tool_choice.kind:
        case "none":
            return ()
        case "named":
            return [tool for tool in job.tools if tool.name == job.tool_choice.name]
        case "auto" | "required":
            return job.tools


def leaves_choice(job: GenerateJob) -> bool:
    """Tell whether an answer is a call or else a text that is no JSON by its schema.

    Calls and schemas are written in the same small pieces, which never conflict.
    """
    structure = job.structure
    is_text = structure is not None and structure.kind != "json_schema"
    return is_text and bool(tools_of(job)) and not job.tool_choice.is_forced


def refuse_names(dialect: Dialect, job: GenerateJob) -> None:
    """Refuse tools whose calls the family could not be understood to make.

    Raises:
        RefusedError: naming the tool.
    """
    for tool in job.tools if job.tool_choice.kind != "none" else ():
        if not dialect.can_call(tool.name):
            raise RefusedError(
                f"tools: the calls of {dialect.name} models cannot hold the name "
                f"{json.dumps(tool.name, ensure_ascii=False)}"
            )


def refuse_ends(structure: Structure, ends: Mapping[str, int]) -> None:
    """Refuse a grammar that has a token in its text which ends the answer.

    Args:
        structure: what is asked of the text.
        ends: the tokens that end a turn, by their texts.

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
    """Tell whether numbers and ranges, perhaps all others than these, hold a token."""
    listed = [_IDS.fullmatch(each) for each in ids.strip("^").split(",")]
    ranges = [
        range(int(each[1]), int(each[2] or each[1]) + 1) for each in listed if each
    ]
    is_inside = [any(token in each for each in ranges) for token in ends.values()]
    return not all(is_inside) if ids.startswith(("^", "*")) else any(is_inside)


def _structured(lark: Lark, structure: Structure) -> tuple[str, str | None]:
    """Give an expression, and the grammar of theirs that it refers to, if any."""
    match structure.kind:
        case "json_schema":
            schema = read_schema(structure.field, structure.source)
            refuse_numbers(structure.field, schema)
            return lark.json(schema), None
        case "regex":
            return lark.pattern(structure.source), None
        case "gbnf":
            return f"@{_THEIRS}", _translated(structure)
        case "lark":
            return f"@{_THEIRS}", _fit(structure)


def _translated(structure: Structure) -> str:
    try:
        return lark_of(structure.source)
    except RefusedError as error:
        raise RefusedError(f"{structure.field}: {error}") from error


def _fit(structure: Structure) -> str:
    """Refuse what cannot be honoured in a grammar of Lark."""
    source = structure.source
    options = (each for each in _UNFIT.finditer(source) if each[1])
    if found := next(options, None):
        line = source.count("\n", 0, found.start()) + 1
        raise RefusedError(
            f"{structure.field}: line {line}: {found[1]} is not supported"
        )
    return source


def _thought(lark: Lark, dialect: Dialect, opened: str, *, may_think: bool) -> str:
    """Match a thought before what is asked for, as far as there may be one."""
    for region in dialect.thoughts:
        if opened in region.begins:
            return _inside(lark, region)
    if not (may_think and dialect.thoughts):
        return ""
    whole = [f"{_begin(lark, each)} {_inside(lark, each)}" for each in dialect.thoughts]
    return f"{either(whole)}?"


def _inside(lark: Lark, region: Region) -> str:
    """Match a thought from where it is open."""
    end = min(region.ends, key=len)
    longer = [each.removeprefix(end) for each in region.ends if each.startswith(end)]
    after = _any_of(lark, filter(None, longer))
    return f"{lark.until(end)} {after}"


def _begin(lark: Lark, region: Region) -> str:
    """Match what opens a region: the shortest spellings, as the rest could be text."""
    begins = region.begins
    shortest = [
        each
        for each in begins
        if not any(each != other and each.startswith(other) for other in begins)
    ]
    return either([lark.marker(each) for each in shortest])


def _before_text(lark: Lark, dialect: Dialect) -> str:
    """Match the marker that a family writes before its text, if it has one."""
    begins = [
        begin
        for region in dialect.regions
        if region.holds == "text" and not region.keeps_begin
        for begin in region.begins
    ]
    return _any_of(lark, begins)


def _any_of(lark: Lark, markers: Iterable[str]) -> str:
    """Match one of several markers, or nothing."""
    expressions = [lark.marker(each) for each in markers]
    return f"{either(expressions)}?" if expressions else ""


def _parts(
    dialect: Dialect,
    job: GenerateJob,
    special: Mapping[str, int],
    tools: Sequence[Tool],
) -> tuple[Part, ...]:
    lark = Lark(special)
    parts: list[Part] = []
    if job.structure is not None and job.has_structured_text:
        parts += grammar_of(job.structure).parts
    for index, tool in enumerate(job.tools):
        if tool in tools:
            field = f"tools[{index}].input_schema"
            refuse_numbers(field, decoded(tool.input_schema))
            lark = lark.fresh()
            try:
                source = _whole(lark, dialect.write_calls(lark, [tool]))
            except UnenforceableError as error:
                raise RefusedError(f"{field}{error}") from error
            parts.append(Part(field, "tool", source))
    return tuple(parts)


def _whole(lark: Lark, start: str, theirs: str | None = None) -> str:
    """Write a grammar, and one that it refers to: llguidance takes several in JSON."""
    ours = _HEADER + lark.source(start)
    if theirs is None:
        return ours
    both = [{"lark_grammar": ours}, {"name": _THEIRS, "lark_grammar": theirs}]
    return json.dumps({"grammars": both})
