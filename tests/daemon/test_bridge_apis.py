"""Anthropic's client, and OpenAI's for responses, in front of a real bridge and daemon."""

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
import trio
from pydantic import BaseModel

from tests.daemon.bridge import BridgeProcess, bridge_to, no_requests
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, mock

pytestmark = pytest.mark.slow


class WeatherArguments(BaseModel):
    """Arguments of the scripted call."""

    city: str


HI: Any = [{"role": "user", "content": "hi"}]
TOOL: Any = {"name": "weather", "input_schema": {"type": "object"}}
FUNCTION: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object"},
    "strict": False,
}
CALL = '<tool_call>{"name":"weather","arguments":{"city":"Köln"}}</tool_call>'
SCRIPTS = {
    "hello": ["Hel", "lo ", "wörld"],
    "caller": ["<think>", "hm", "</think>", "Look: ", CALL, CALL],
    "endless": ["x"] * 100_000,
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """One daemon for all tests."""
    with daemons() as make:
        tables = [
            mock(name=name, tokens=tokens, token_delay_ms=20 * (name == "endless"))
            for name, tokens in SCRIPTS.items()
        ]
        yield make({"backend": tables}).start()


@pytest.fixture(scope="module")
def bridge(daemon: DaemonProcess) -> Iterator[BridgeProcess]:
    """One bridge to it."""
    with bridge_to(daemon) as made:
        yield made


@pytest.fixture
def claude(bridge: BridgeProcess) -> Iterator[anthropic.Anthropic]:
    """Anthropic's client."""
    with anthropic.Anthropic(
        base_url=bridge.address, api_key="none", max_retries=0
    ) as made:
        yield made


@pytest.fixture
def client(bridge: BridgeProcess) -> Iterator[openai.OpenAI]:
    """OpenAI's client."""
    with bridge.client() as made:
        yield made


def test_a_message_is_streamed_and_its_calls_go_round(claude):
    with claude.messages.stream(
        model="caller",
        max_tokens=99,
        messages=HI,
        tools=[TOOL],
        thinking={"type": "enabled", "budget_tokens": 1024},
    ) as stream:
        first = stream.get_final_message()
    thought, text, *calls = first.content
    assert (thought.thinking, text.text.strip()) == ("hm", "Look:")
    assert [call.input for call in calls] == [{"city": "Köln"}] * 2
    assert len({call.id for call in calls}) == 2
    assert first.stop_reason == "tool_use"
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": "12 °C"}
        for call in calls
    ]
    again = claude.messages.create(
        model="hello",
        max_tokens=9,
        tools=[TOOL],
        messages=[
            *HI,
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": results},
        ],
    )
    assert [block.text for block in again.content] == ["Hello wörld"]
    assert again.stop_reason == "end_turn"


def test_tokens_are_counted_and_a_prompt_computed_alone(claude):
    count = claude.messages.count_tokens(model="hello", messages=HI, system="brief")
    found = claude.messages.create(
        model="hello", max_tokens=0, messages=HI, system="brief"
    )
    usage = found.usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    assert (found.content, found.stop_reason) == ([], "max_tokens")


def test_models_are_told_in_the_form_of_each_client(claude, client):
    assert [model.id for model in claude.models.list()] == [*SCRIPTS]
    assert claude.models.retrieve("hello").display_name == "hello"
    assert [model.id for model in client.models.list()] == [*SCRIPTS]
    with pytest.raises(anthropic.NotFoundError) as missing:
        claude.models.retrieve("big")
    assert missing.value.type == "not_found_error"


def test_a_refusal_is_an_error_of_anthropics_client(claude):
    with pytest.raises(anthropic.BadRequestError, match="mood") as refused:
        claude.messages.create(
            model="hello", max_tokens=9, messages=HI, extra_body={"mood": 1}
        )
    assert str(refused.value.request_id).startswith("req_")
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="big", max_tokens=9, messages=HI)


def test_leaving_a_message_ends_the_request_in_the_daemon(daemon, claude):
    with claude.messages.stream(
        model="endless", max_tokens=90_000, messages=HI
    ) as stream:
        assert next(iter(stream.text_stream)) == "x"
    assert no_requests(daemon)


async def test_the_async_client_streams_calls_and_is_cancelled(daemon, bridge):
    async with anthropic.AsyncAnthropic(
        base_url=bridge.address, api_key="none", max_retries=0
    ) as claude:
        asked: Any = {"max_tokens": 99, "tools": [TOOL]}
        async with claude.messages.stream(
            model="caller", messages=HI, **asked
        ) as stream:
            first = await stream.get_final_message()
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "12 °C"}
            for block in first.content
            if block.type == "tool_use"
        ]
        said: Any = [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": results},
        ]
        again = await claude.messages.create(
            model="hello", messages=[*HI, *said], **asked
        )
        assert (len(results), again.content[0].text) == (2, "Hello wörld")
        async with claude.messages.stream(
            model="endless", max_tokens=90_000, messages=HI
        ) as stream:
            with trio.CancelScope() as scope:
                async for text in stream.text_stream:
                    assert text == "x"
                    scope.cancel()
        assert scope.cancelled_caught
    assert no_requests(daemon)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_async_client_streams_a_response(bridge):
    async with bridge.async_client() as client:
        stream = await client.responses.create(model="hello", input="hi", stream=True)
        kinds = [each.type async for each in stream]
        whole = await client.responses.create(model="hello", input="hi")
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert whole.output_text == "Hello wörld"


def test_a_response_is_streamed_and_its_calls_go_round(client):
    with client.responses.stream(
        model="caller",
        input="hi",
        instructions="brief",
        tools=[FUNCTION, {"type": "web_search"}],
        reasoning={"effort": "low"},
    ) as stream:
        first = stream.get_final_response()
    reasoning, message, *calls = first.output
    assert reasoning.content[0].text == "hm"
    assert message.content[0].text.strip() == "Look:"
    assert [call.arguments for call in calls] == ['{"city":"Köln"}'] * 2
    assert first.metadata == {"inferd_skipped_tools": "tools[1] web_search"}
    again = client.responses.create(
        model="hello",
        tools=[FUNCTION],
        input=[
            *HI,
            *first.output,
            *[
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": "12 °C",
                }
                for call in calls
            ],
        ],
    )
    assert (again.output_text, again.status) == ("Hello wörld", "completed")


def test_strict_tools_that_the_clients_insist_on_are_called_and_go_round(
    bridge, client
):
    """The parser of OpenAI's client takes no others, whatever ``tool_choice`` is."""
    asked: Any = {
        "model": "caller",
        "tools": [openai.pydantic_function_tool(WeatherArguments, name="weather")],
    }
    chats = client.chat.completions
    message = chats.parse(messages=HI, **asked).choices[0].message
    assert message.tool_calls[0].function.parsed_arguments == WeatherArguments(
        city="Köln"
    )
    results: Any = [
        {"role": "tool", "tool_call_id": call.id, "content": "12 °C"}
        for call in message.tool_calls
    ]
    raw = chats.with_raw_response.create(messages=[*HI, message, *results], **asked)
    assert raw.headers["x-inferd-unenforced"] == "tools[0].function.strict"


def test_the_tool_runner_goes_on_without_a_thread(claude):
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"{city}: 12 °C"

    turns = claude.beta.messages.tool_runner(
        model="caller", max_tokens=99, messages=HI, tools=[weather], max_iterations=2
    )
    assert [turn.stop_reason for turn in turns] == ["tool_use"] * 2


def test_a_response_that_fails_in_mid_stream_says_so(make_daemon):
    dying = mock(tokens=["a", "b", "c"], die_after_tokens=2, token_delay_ms=20)
    daemon = make_daemon({"backend": [dying]}).start()
    with bridge_to(daemon) as bridge, bridge.client() as client:
        *begun, last = client.responses.create(model="mock", input="hi", stream=True)
    assert begun[0].type == "response.created"
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "server_error"
    assert last.sequence_number == len(begun)
