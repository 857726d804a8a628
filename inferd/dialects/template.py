"""Render the chat template that a GGUF carries.

A template is code from a stranger. It runs in an immutable sandbox, without access to
attributes that lead out of it and without huge numbers, and its output is cut off at a bound. It is compiled and
rendered in the worker alone: a template that never ends, or that takes all memory before
it writes, costs the worker and no more.
"""

import datetime as dt
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.utils import Namespace

from inferd.dialects.effort import TooMuchWorkError
from inferd.dialects.sandbox import Sandbox
from inferd.dialects.turns import arguments_of, declaration, dumped, parsed
from inferd.job import Tool, ToolCall, Turn
from inferd.limits import TEMPLATE_OUTPUT_CHARS

Message = dict[str, object]


class TemplateError(Exception):
    """The template does not compile, refuses the turns, or runs out of bounds."""


@dataclass(frozen=True, kw_only=True)
class Wants:
    """What a template wants to be given, where templates differ."""

    parts: bool = False
    """A turn's text in a list of parts instead of plain."""
    arguments_as_text: bool = False
    """The arguments of a call as JSON instead of as an object."""
    nine_characters: bool = False
    """An id of a call that is nine letters and digits; Mistral's refuse any other."""
    efforts: tuple[str, str] | None = None
    """``reasoning_effort``: without a thought, and with one."""


USUAL: Final = Wants()
_NINE_CHARACTERS: Final = re.compile("[a-zA-Z0-9]{9}")


class ChatTemplate:
    """A compiled template.

    Args:
        source: Jinja2, as ``tokenizer.chat_template`` holds it.
        tokens: texts of special tokens by the names templates use (``bos_token``, …).
        today: called when the template asks for the date.

    Raises:
        TemplateError: it does not compile.
    """

    def __init__(
        self,
        source: str,
        tokens: Mapping[str, str],
        today: Callable[[], dt.datetime],
    ) -> None:
        self.source = source
        """As it was given."""
        self._tokens = dict(tokens)
        try:
            self._template = _environment(today).from_string(source)
        except Exception as error:  # a stranger's code may break any compiler
            raise TemplateError(
                f"the chat template does not compile: {_reason(error)}"
            ) from error

    def render(
        self,
        turns: Sequence[Turn],
        tools: Sequence[Tool] = (),
        *,
        thinks: bool = False,
        wants: Wants = USUAL,
    ) -> str:
        """Write the prompt up to where the assistant speaks.

        Raises:
            TemplateError: with the template's own words where it has any.
            TooMuchWorkError: what it indents becomes too long.
        """
        if wants.efforts is None:
            effort = {}
        else:
            effort = {"reasoning_effort": wants.efforts[thinks]}
        writing = self._template.generate(
            messages=[_message(each, wants) for each in turns],
            tools=[declaration(each) for each in tools] or None,
            documents=None,
            add_generation_prompt=True,
            enable_thinking=thinks,
            thinking=thinks,
            **effort,
            **self._tokens,
        )
        try:
            text = "".join(_bounded(writing))
            text.encode()  # half a surrogate pair is no text
        except (TemplateError, TooMuchWorkError):
            raise
        except Exception as error:  # a stranger's code may raise anything
            raise TemplateError(
                f"the chat template failed: {_reason(error)}"
            ) from error
        return text


def _reason(error: Exception) -> str:
    """Tell what went wrong, also where an error says nothing, as ``MemoryError``."""
    return str(error) or type(error).__name__


def _bounded(pieces: Iterable[str]) -> Iterator[str]:
    n_chars = 0
    for piece in pieces:
        n_chars += len(piece)
        if n_chars > TEMPLATE_OUTPUT_CHARS:
            raise TemplateError(
                f"the chat template wrote over {TEMPLATE_OUTPUT_CHARS} characters"
            )
        yield piece


# What a template is given, in the shape that the field has agreed on.


def _message(turn: Turn, wants: Wants) -> Message:
    text = turn.text
    content = [{"type": "text", "text": text}] if wants.parts else text
    message: Message = {"role": turn.role, "content": content}
    if turn.calls:
        message["tool_calls"] = [_call(each, wants) for each in turn.calls]
    if turn.role == "tool":
        message |= {"tool_call_id": _id(turn.call_id, wants)}
        message |= {"name": turn.name} if turn.name else {}
    return message


def _call(call: ToolCall, wants: Wants) -> Message:
    as_text = wants.arguments_as_text
    arguments = arguments_of(call) if as_text else parsed(call.arguments)
    function = {"name": call.name, "arguments": arguments}
    return {"id": _id(call.id, wants), "type": "function", "function": function}


def _id(call_id: str, wants: Wants) -> str:
    if not wants.nine_characters or _NINE_CHARACTERS.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


# What a template may use.


class _Generation(Extension):
    """Writes what stands in ``{% generation %}``, a mark for those who train models."""

    tags: Final = {"generation"}  # type: ignore[misc]  # Jinja2 has no ClassVar

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _PlainNamespace(Namespace):
    """A namespace without private names, by which it could pose as something else."""

    def __setitem__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"{name} in a namespace is unsafe")
        super().__setitem__(name, value)


def _namespace(*given: Mapping[str, object], **named: object) -> Namespace:
    namespace = _PlainNamespace()
    for name, value in dict(*given, **named).items():
        namespace[name] = value
    return namespace


def _dict(*given: Mapping[str, object], **named: object) -> dict[str, object]:
    """Make a dictionary; the class itself would come with ``dict.update``."""
    return dict(*given, **named)


def _environment(today: Callable[[], dt.datetime]) -> Sandbox:
    environment = Sandbox([loopcontrols, _Generation])
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": lambda pattern: today().strftime(pattern),
        "namespace": _namespace,
        "dict": _dict,
    }
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002  # templates know these by place
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Write JSON as templates expect it: unescaped, unlike Jinja2's own filter."""
    return dumped(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> str:
    raise jinja2.TemplateError(message)
