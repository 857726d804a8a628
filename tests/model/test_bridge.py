"""Clients of the bridge in front of a model: what a scripted backend cannot do."""

from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import openai
import pytest
from pydantic import BaseModel, Field

from tests.daemon.bridge import BridgeProcess, bridge_to
from tests.daemon.fixtures import daemons
from tests.daemon.harness import llamacpp

pytestmark = [pytest.mark.slow, pytest.mark.model]

ASK = [{"role": "user", "content": "Where is it warm?"}]


class Place(BaseModel):
    """What an answer has to be."""

    city: Literal["London", "Paris"]
    degrees: int = Field(ge=0, le=9)


class City(BaseModel):
    """One with nothing that Anthropic's client says in words alone."""

    city: Literal["London", "Paris"]


@pytest.fixture(scope="module")
def bridge(shortened_chat) -> Iterator[BridgeProcess]:
    """A bridge to a daemon with a model that has one layer."""
    with daemons() as make:
        daemon = make({"backend": [llamacpp(shortened_chat, n_ctx=512)]}).start()
        with bridge_to(daemon) as made:
            yield made


@pytest.fixture(scope="module")
def client(bridge) -> Iterator[openai.OpenAI]:
    """A client of it."""
    with bridge.client() as made:
        yield made


def test_an_answer_is_parsed_into_the_type_that_was_asked_for(client):
    found = client.chat.completions.parse(
        model="chat", messages=ASK, response_format=Place, max_tokens=64
    )
    place = found.choices[0].message.parsed
    assert isinstance(place, Place)
    assert found.choices[0].finish_reason == "stop"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_async_client_parses_it_as_well(bridge):
    async with bridge.async_client() as client:
        found = await client.chat.completions.parse(
            model="chat", messages=ASK, response_format=Place, max_tokens=64
        )
    assert isinstance(found.choices[0].message.parsed, Place)


def test_a_strict_tool_is_called_with_what_its_schema_allows(client):
    found = client.chat.completions.parse(
        model="chat",
        messages=ASK,
        tools=[openai.pydantic_function_tool(Place)],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=128,
    )
    [call] = found.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Place)
    assert found.choices[0].finish_reason == "tool_calls"


def test_tokens_have_their_log_probabilities(client):
    found = client.chat.completions.create(
        model="chat", messages=ASK, max_tokens=4, logprobs=True, top_logprobs=2, seed=1
    )
    choice = found.choices[0]
    assert "".join(each.token for each in choice.logprobs.content) != ""
    assert all(len(each.top_logprobs) == 2 for each in choice.logprobs.content)
    assert choice.finish_reason == "length"


def test_a_prompt_that_does_not_fit_is_refused_with_the_numbers(client):
    long = [{"role": "user", "content": "word " * 1000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="chat", messages=long)
    assert caught.value.code == "context_length_exceeded"
    assert "512" in caught.value.message
    assert caught.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="chat", input="word " * 1000)
    assert caught.value.param == "input"


def test_reasoning_of_a_model_that_has_none_is_refused(client):
    with pytest.raises(openai.BadRequestError, match="no support for reasoning") as no:
        client.chat.completions.create(
            model="chat", messages=ASK, reasoning_effort="high"
        )
    assert (no.value.code, no.value.param) == (
        "unsupported_parameter",
        "reasoning_effort",
    )


async def test_a_message_is_parsed_into_the_type_that_was_asked_for(bridge):
    asked: Any = {"model": "chat", "max_tokens": 64, "messages": ASK}
    given: Any = {"base_url": bridge.address, "api_key": "none", "max_retries": 0}
    with anthropic.Anthropic(**given) as claude:
        one = claude.messages.parse(**asked, output_format=City).parsed_output
    async with anthropic.AsyncAnthropic(**given) as claude:
        found = await claude.messages.parse(**asked, output_format=City)
    assert isinstance(one, City)
    assert isinstance(found.parsed_output, City)


def test_a_stream_of_a_message_begins_with_the_tokens_of_its_prompt(bridge):
    with (
        anthropic.Anthropic(
            base_url=bridge.address, api_key="none", max_retries=0
        ) as claude,
        claude.messages.stream(
            model="chat", max_tokens=2, messages=[{"role": "user", "content": "hi"}]
        ) as stream,
    ):
        first = next(event for event in stream if event.type == "message_start")
        told = first.message.usage.input_tokens
        usage = stream.get_final_message().usage
    assert told == usage.input_tokens + (usage.cache_read_input_tokens or 0) > 0


def test_a_changing_billing_header_leaves_the_prompt_in_the_cache(bridge):
    """A coding agent puts the header at the head of each turn's system prompt."""
    rules: Any = {
        "type": "text",
        "text": "Edit files with care. " * 30,
        "cache_control": {"type": "ephemeral"},
    }
    talk: list[Any] = [{"role": "user", "content": "hi"}]
    cached = []
    with anthropic.Anthropic(
        base_url=bridge.address, api_key="none", max_retries=0
    ) as claude:
        for turn in "ab":
            header = f"x-anthropic-billing-header: cc_version=2.1.{turn}; cch={turn};"
            found = claude.messages.create(
                model="chat",
                max_tokens=4,
                system=[{"type": "text", "text": header}, rules],
                messages=talk,
            )
            cached.append(found.usage.cache_read_input_tokens or 0)
            talk += [
                {"role": "assistant", "content": found.content},
                {"role": "user", "content": "go on"},
            ]
    first, second = cached
    assert (first, second > 100) == (0, True)
