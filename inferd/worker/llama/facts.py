"""What a model's requests are written with, in a form that goes to another process.

The daemon passes it on from the worker to the preparer and reads none of it.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.dialects.prompts import Prompts
from inferd.dialects.registry import DIALECTS
from inferd.dialects.spellings import TokenTexts
from inferd.dialects.template import ChatTemplate

__all__ = ["Facts", "Words", "decode_facts", "decode_words", "encode", "prompts_of"]


class Facts(Struct, frozen=True, kw_only=True):
    """How a model wants its prompts."""

    template: str | None
    """The chat template that it carries; nothing where it is not to be used."""
    dialect: str
    """Of its family."""
    special: Mapping[str, str]
    """Texts of special tokens by the names that templates use."""
    always: Sequence[str] = ()
    where_used: Sequence[str] = ()
    """Texts that become one token each, as ``TokenTexts`` has them."""


class Words(Struct, frozen=True, kw_only=True):
    """A model's vocabulary, as grammars see it."""

    spelt: Sequence[bytes]
    """The bytes of each token."""
    special: Sequence[int]
    """Tokens that no text spells."""
    ends: Sequence[int]
    """Tokens that end a turn; one at least."""
    named: Mapping[str, int] = {}
    """Tokens that no text spells, by what they are called."""
    ends_named: Mapping[str, int] = {}
    """Those of them that end a turn."""
    openings: Mapping[str, Sequence[int]] = {}
    """Tokens of the ways in which the family's calls begin."""


_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(told: Facts | Words) -> bytes:
    """Write either as bytes."""
    return _ENCODER.encode(told)


def decode_facts(data: bytes) -> Facts:
    """Read facts; raises ``msgspec.DecodeError`` if they are none."""
    return msgspec.msgpack.decode(data, type=Facts)


def decode_words(data: bytes) -> Words:
    """Read a vocabulary; raises ``msgspec.DecodeError`` if it is none."""
    return msgspec.msgpack.decode(data, type=Words)


def prompts_of(facts: Facts) -> Prompts:
    """Make what writes the model's prompts.

    Raises:
        TemplateError: its template does not compile.
    """
    template = (
        None
        if facts.template is None
        else ChatTemplate(facts.template, facts.special, _today)
    )
    texts = TokenTexts(facts.always, facts.where_used)
    return Prompts(template, DIALECTS[facts.dialect], texts)


def _today() -> dt.datetime:
    return dt.datetime.now().astimezone()
