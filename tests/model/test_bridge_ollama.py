"""Ollama's client in front of a model: what a scripted backend cannot do."""

from collections.abc import Iterator
from typing import Literal

import anthropic
import ollama
import pytest
from pydantic import BaseModel, Field

from tests.daemon.bridge import BridgeProcess, bridge_to
from tests.daemon.fixtures import daemons
from tests.daemon.harness import eventually, llamacpp

pytestmark = [pytest.mark.slow, pytest.mark.model]

ASK = [{"role": "user", "content": "Where is it warm?"}]


class Warm(BaseModel, extra="forbid"):
    """What an answer has to be."""

    city: Literal["London", "Paris"]
    degrees: int = Field(ge=0, le=9)


@pytest.fixture(scope="module")
def bridge(shortened_chat) -> Iterator[BridgeProcess]:
    """A bridge to a daemon with a model of one layer, and one that is loaded on demand."""
    chat = llamacpp(shortened_chat, n_ctx=512)
    later = {**llamacpp(shortened_chat, n_ctx=512), "name": "later", "load": "demand"}
    with daemons() as make:
        daemon = make({"backend": [chat, later]}).start()
        with bridge_to(daemon) as made:
            yield made


@pytest.fixture(scope="module")
def client(bridge) -> Iterator[ollama.Client]:
    """A client of it."""
    with ollama.Client(bridge.address) as made:
        yield made


def test_an_answer_has_the_form_that_was_asked_for(client):
    found = client.chat(
        "chat", ASK, format=Warm.model_json_schema(), options={"num_predict": 64}
    )
    assert Warm.model_validate_json(found.message.content).degrees < 10
    assert (found.done_reason, found.prompt_eval_count > 0) == ("stop", True)


async def test_an_async_client_asks_for_a_form_as_well(bridge):
    async with ollama.AsyncClient(bridge.address) as client:
        found = await client.chat(
            "chat", ASK, format=Warm.model_json_schema(), options={"num_predict": 64}
        )
    assert Warm.model_validate_json(found.message.content).degrees < 10


def test_tokens_have_their_log_probabilities(client):
    found = client.generate(
        "chat",
        "hi",
        logprobs=True,
        top_logprobs=2,
        options={"num_predict": 3, "seed": 1, "temperature": 0},
    )
    assert found.done_reason == "length"
    assert [len(each.top_logprobs) for each in found.logprobs] == [2] * 3


def test_a_context_is_told_and_a_longer_one_refused_with_the_numbers(client):
    shown = client.show("chat")
    assert "tools" in shown.capabilities
    [length] = [
        value for name, value in shown.modelinfo.items() if "context_length" in name
    ]
    assert length == 512
    fits = client.chat("chat", ASK, options={"num_ctx": 512, "num_predict": 1})
    assert fits.done
    with pytest.raises(ollama.ResponseError, match="513 tokens.* 512") as refused:
        client.chat("chat", ASK, options={"num_ctx": 513})
    assert refused.value.status_code == 400


def test_a_model_without_reasoning_answers_unless_it_is_asked_to_reason(bridge, client):
    assert client.chat("chat", ASK, options={"num_predict": 1}).done
    with pytest.raises(ollama.ResponseError, match="no support for reas") as refused:
        client.chat("chat", ASK, think=True)
    assert refused.value.status_code == 400
    with anthropic.Anthropic(
        base_url=bridge.address, api_key="none", max_retries=0
    ) as claude:
        found = claude.messages.create(
            model="chat",
            max_tokens=1,
            messages=[{"role": "user", "content": "hi"}],
            thinking={"type": "adaptive"},
        )
    assert found.stop_reason == "max_tokens"


def test_a_model_is_loaded_without_a_prompt_and_unloaded(client):
    def running() -> set[str | None]:
        return {model.model for model in client.ps().models}

    assert running() == {"chat"}
    assert client.generate("later").done_reason == "load"
    assert running() == {"chat", "later"}
    assert client.generate("later", keep_alive=0).done_reason == "unload"
    assert eventually(lambda: running() == {"chat"})
