"""Render the chat template that a GGUF carries.

A template is code from a stranger. It runs in an immutable sandbox, without access to
attributes that lead out of it, and its output is cut off at a bound. It is compiled and
rendered in the worker alone: a template that never ends costs the worker and no more.
"""

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from inferd.limits import TEMPLATE_OUTPUT_CHARS
from inferd.wire.requests import ChatMessage


class TemplateError(Exception):
    """The template does not compile, refuses the messages, or runs out of bounds."""


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
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda pattern: today().strftime(pattern)
        self._tokens = dict(tokens)
        try:
            self._template = environment.from_string(source)
        except Exception as error:  # a stranger's code may break any compiler
            raise TemplateError(
                f"the chat template does not compile: {error}"
            ) from error

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """Write the prompt up to where the assistant speaks.

        Raises:
            TemplateError: with the template's own words where it has any.
        """
        turns = [{"role": each.role, "content": each.content} for each in messages]
        writing = self._template.generate(
            messages=turns, add_generation_prompt=True, **self._tokens
        )
        try:
            text = "".join(_bounded(writing))
            text.encode()  # half a surrogate pair is no text
        except TemplateError:
            raise
        except Exception as error:  # a stranger's code may raise anything
            raise TemplateError(f"the chat template failed: {error}") from error
        return text


def _bounded(pieces: Iterable[str]) -> Iterator[str]:
    n_chars = 0
    for piece in pieces:
        n_chars += len(piece)
        if n_chars > TEMPLATE_OUTPUT_CHARS:
            raise TemplateError(
                f"the chat template wrote over {TEMPLATE_OUTPUT_CHARS} characters"
            )
        yield piece


def _to_json(
    value: object, *, indent: int | None = None, ensure_ascii: bool = False
) -> str:
    """Write JSON as templates expect it: unescaped, unlike Jinja2's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> str:
    raise jinja2.TemplateError(message)
