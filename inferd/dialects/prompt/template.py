"""Render the chat template of a GGUF file.

A template is untrusted code. It runs in an immutable sandbox, without access to attributes
that lead out of it and without huge numbers, and its output is limited. It is compiled and
rendered only in the worker: a template that never ends, or that uses all memory, ends the
worker and nothing else.
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

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.prompt.jinja_sandbox import TemplateSandbox
from inferd.dialects.rendering import arguments_of, declaration, dump_json, parse_json
from inferd.dialects.step_limit import TooMuchWorkError
from inferd.limits.prompts import TEMPLATE_OUTPUT_CHARS

TemplateMessage = dict[str, object]


class TemplateError(Exception):
    """The template does not compile, rejects the turns, or exceeds a limit."""


@dataclass(frozen=True, kw_only=True)
class TemplateInput:
    """The input format of a template, as far as templates differ."""

    parts: bool = False
    """Pass the text of a turn as a list of parts instead of a string."""
    arguments_as_text: bool = False
    """Pass the arguments of a call as JSON text instead of an object."""
    nine_char_ids: bool = False
    """Pass call ids of nine letters and digits; Mistral's templates reject others."""
    efforts: tuple[str, str] | None = None
    """Values of ``reasoning_effort`` without and with thinking."""


DEFAULT_INPUT: Final = TemplateInput()
_NINE_CHARACTERS: Final = re.compile("[a-zA-Z0-9]{9}")


class ChatTemplate:
    """A compiled template.

    Args:
        source: Jinja2 source, as in ``tokenizer.chat_template``.
        tokens: texts of special tokens by their names in templates (``bos_token``, …).
        today: returns the date, if the template uses it.

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
        """The Jinja2 source."""
        self._tokens = dict(tokens)
        try:
            self._template = _environment(today).from_string(source)
        except Exception as error:  # untrusted code may break the compiler
            raise TemplateError(
                f"the chat template does not compile: {_reason(error)}"
            ) from error

    def render(
        self,
        turns: Sequence[Turn],
        tools: Sequence[ToolSpec] = (),
        *,
        thinks: bool = False,
        wants: TemplateInput = DEFAULT_INPUT,
    ) -> str:
        """Render the prompt, up to the assistant's turn.

        Raises:
            TemplateError: the template failed; with its own message, if it has one.
            TooMuchWorkError: indented JSON becomes too long.
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
            text.encode()  # fails for lone surrogates
        except (TemplateError, TooMuchWorkError):
            raise
        except Exception as error:  # untrusted code may raise anything
            raise TemplateError(
                f"the chat template failed: {_reason(error)}"
            ) from error
        return text


def _reason(error: Exception) -> str:
    """Return the message of an error, or its type if it has none, as ``MemoryError``."""
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


# The input of a template, in the common (OpenAI) format.


def _message(turn: Turn, wants: TemplateInput) -> TemplateMessage:
    text = turn.text
    content = [{"type": "text", "text": text}] if wants.parts else text
    message: TemplateMessage = {"role": turn.role, "content": content}
    if turn.calls:
        message["tool_calls"] = [_call(each, wants) for each in turn.calls]
    if turn.role == "tool":
        message |= {"tool_call_id": _id(turn.call_id, wants)}
        message |= {"name": turn.name} if turn.name else {}
    return message


def _call(call: PastCall, wants: TemplateInput) -> TemplateMessage:
    as_text = wants.arguments_as_text
    arguments = arguments_of(call) if as_text else parse_json(call.arguments)
    function = {"name": call.name, "arguments": arguments}
    return {"id": _id(call.id, wants), "type": "function", "function": function}


def _id(call_id: str, wants: TemplateInput) -> str:
    if not wants.nine_char_ids or _NINE_CHARACTERS.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


# The environment of a template.


class _Generation(Extension):
    """Renders the body of ``{% generation %}`` blocks, which mark training targets."""

    tags: Final = {"generation"}  # type: ignore[misc]  # Jinja2 has no ClassVar

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _PlainNamespace(Namespace):
    """A namespace without private names, which could make it pass for other types."""

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
    """Make a dictionary; the class itself would give access to ``dict.update``."""
    return dict(*given, **named)


def _environment(today: Callable[[], dt.datetime]) -> TemplateSandbox:
    environment = TemplateSandbox([loopcontrols, _Generation])
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
    """Encode JSON as templates expect it: unescaped, unlike Jinja2's own filter."""
    return dump_json(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> str:
    raise jinja2.TemplateError(message)
