"""The kind ``anthropic``: a server with Anthropic's Messages API."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from inferd.config.kinds.kind import Contradiction
from inferd.config.kinds.remote import (
    RemoteSettings,
    find_contradiction,
    remote_kind,
)
from inferd.config.settings import I32_MAX

Sampler = Literal["temperature", "top_p", "top_k"]
LEAST_THINKING_BUDGET: Final = 1024
"""Tokens of reasoning, the fewest that the API takes."""


class AnthropicSettings(RemoteSettings, frozen=True, tag="anthropic", tag_field="kind"):
    """A server with Anthropic's Messages API."""

    tools: bool = False
    """The model there calls tools."""
    thinking: bool = False
    """The model there can reason before it answers."""
    thinking_budget: (
        Annotated[int, Meta(ge=LEAST_THINKING_BUDGET, le=I32_MAX)] | None
    ) = None
    """Tokens of reasoning, for models that want a number. With one, reasoning is refused after
    the results of tools, which would need the earlier reasoning. Default: the model decides
    (``adaptive``)."""
    structure: bool = False
    """The server holds an answer to a JSON schema in ``output_config.format``."""
    vision: bool = False
    """The model there takes images."""
    samplers: tuple[Sampler, ...] = ()
    """Parameters that the model there takes, which the newest ones do not. Requests with others
    are refused, unless their value is the protocol's default."""
    count_tokens: bool = False
    """Ask the server for the tokens of prompts that are only to be counted, by
    ``/messages/count_tokens``. Default: they are estimated."""


def _contradiction(settings: AnthropicSettings) -> Contradiction | None:
    if settings.thinking_budget is not None and not settings.thinking:
        budget = settings.thinking_budget
        return Contradiction("thinking_budget", budget, "thinking = true")
    return find_contradiction(settings)


ANTHROPIC: Final = remote_kind(
    AnthropicSettings, "inferd.worker.remote.anthropic", _contradiction
)
