"""Encode a model's prompt format and vocabulary for the preparer process.

The daemon forwards these bytes from the worker to the preparer without decoding them.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.dialects.prompt.renderer import PromptRenderer
from inferd.dialects.prompt.special_tokens import SpecialTokenTexts
from inferd.dialects.prompt.template import ChatTemplate
from inferd.dialects.registry import DIALECTS

__all__ = [
    "PromptFormat",
    "TokenTable",
    "decode_prompt_format",
    "decode_token_table",
    "encode_model_info",
    "prompts_of",
]


class PromptFormat(Struct, frozen=True, kw_only=True):
    """Template, dialect and special tokens of a model's prompts."""

    template: str | None
    """The model's chat template; ``None`` to use the dialect's own format."""
    dialect: str
    """Name of its family's dialect."""
    special: Mapping[str, str]
    """Texts of special tokens by the names that templates use."""
    always: Sequence[str] = ()
    where_used: Sequence[str] = ()
    """Texts that become one token each, as ``SpecialTokenTexts`` has them."""


class TokenTable(Struct, frozen=True, kw_only=True):
    """A model's vocabulary in the form that grammars need."""

    token_bytes: Sequence[bytes]
    """The bytes of each token."""
    special: Sequence[int]
    """Ids of special tokens."""
    ends: Sequence[int]
    """Ids of tokens that end a turn; at least one."""
    special_by_text: Mapping[str, int] = {}
    """Ids of special tokens by their texts."""
    ends_by_text: Mapping[str, int] = {}
    """Those of them that end a turn."""
    call_prefixes: Mapping[str, Sequence[int]] = {}
    """Tokens of the texts with which the family's tool calls begin."""


_ENCODER: Final = msgspec.msgpack.Encoder()


def encode_model_info(info: PromptFormat | TokenTable) -> bytes:
    """Encode either as bytes."""
    return _ENCODER.encode(info)


def decode_prompt_format(data: bytes) -> PromptFormat:
    """Decode a prompt format; raises ``msgspec.DecodeError`` if it is not valid."""
    return msgspec.msgpack.decode(data, type=PromptFormat)


def decode_token_table(data: bytes) -> TokenTable:
    """Decode a vocabulary; raises ``msgspec.DecodeError`` if it is not valid."""
    return msgspec.msgpack.decode(data, type=TokenTable)


def prompts_of(prompt_format: PromptFormat) -> PromptRenderer:
    """Create the renderer of the model's prompts.

    Raises:
        TemplateError: the template does not compile.
    """
    template = (
        None
        if prompt_format.template is None
        else ChatTemplate(prompt_format.template, prompt_format.special, _today)
    )
    texts = SpecialTokenTexts(prompt_format.always, prompt_format.where_used)
    return PromptRenderer(template, DIALECTS[prompt_format.dialect], texts)


def _today() -> dt.datetime:
    return dt.datetime.now().astimezone()
