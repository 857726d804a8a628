"""What a user writes: each call of the client, checked strictly."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import trio

from inferd.client import (
    AsyncClient,
    Client,
    ContextOverflow,
    ModelNotFound,
    QueueFull,
    TextEvent,
    ToolError,
    tool,
)
from inferd.client.callback import (
    ChatMessage,
    ChatRequest,
    ChatResponse,
    InferenceClient,
)
from inferd.client.events import CallbackEvent, ContextFullError, Session

SECOND = bytes(4 * 16_000)


@dataclass
class Person:
    name: str
    age: int


@tool
def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: its name.
    """
    if not city:
        raise ToolError("no city")
    return "sunny"


def threads(address: str) -> list[str]:
    said: list[str] = []
    with Client(url=address) as client:
        client.wait_ready()
        answer = client.chat("hi", max_tokens=20)
        said.append(answer.text)
        with client.stream([{"role": "user", "content": "hi"}]) as stream:
            said.append("".join(stream))
            tokens: int = stream.final().usage.output_tokens
        with client.stream("hi") as other:
            said += [
                each.text for each in other.events() if isinstance(each, TextEvent)
            ]
        vectors: list[list[float]] = [
            [*each] for each in client.embed(["a", "b"]).vectors
        ]
        best: str = client.rerank("a", ["a", "b"]).results[0].document
        said += [
            best,
            str(len(vectors)),
            str(client.count_tokens("hi")),
            str(tokens > 0),
        ]
        said.append(client.transcribe(iter([SECOND])).text)
        names: list[str] = [each.name for each in client.models()]
        said += [*names, client.status().state]
        run = client.run_tools("hi", [weather], max_turns=2)
        said.append(run.answer.text)
        try:
            client.chat("hi", model="nobody")
        except ModelNotFound as missing:
            said += missing.models
        except QueueFull as full:
            print(full.retry_after)
        except ContextOverflow as over:
            print(over.tokens_over)
        with ThreadPoolExecutor(4) as pool:
            said += [each.text for each in pool.map(client.chat, ["a", "b"])]
        told: list[str] = []

        def show(event: CallbackEvent, content: str, name: str, call_id: str) -> bool:
            told.append(event.name)
            return not (name or call_id) or bool(content)

        session = Session(client, show)
        try:
            response = session.add_message("user", "hi")
            said += [response.content, response.finish_reason, told[-1]]
        except ContextFullError as full_context:
            session.evict_messages(full_context.evict)
    return said


def parsed(client: Client) -> Person:
    return client.parse(Person, "who?")


async def tasks(address: str) -> list[str]:
    said: list[str] = []

    async def live() -> AsyncIterator[bytes]:
        yield SECOND

    async with AsyncClient(url=address) as client:
        await client.wait_ready()
        said.append((await client.chat("hi", max_tokens=20)).text)
        async with client.stream("hi") as stream:
            said += [text async for text in stream]
            said.append((await stream.final()).stop_reason)
        said.append((await client.transcribe(live())).text)
        said.append((await client.rerank("a", ["a", "b"])).results[0].document)
    return said


def called_back(address: str) -> list[str]:
    said: list[str] = []

    def ended(response: ChatResponse) -> None:
        said.append(response.full_response)

    with InferenceClient(url=address) as client:
        handle = client.chat(
            ChatRequest([ChatMessage("user", "hi")]), said.append, ended
        )
        while client.is_in_flight(handle):
            client.poll()
    return said


if __name__ == "__main__":
    address = sys.argv[1]
    print(threads(address))
    print(asyncio.run(tasks(address)))
    print(trio.run(tasks, address))
    print(called_back(address))
