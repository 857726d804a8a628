"""Conversations as events, with frames of the test's own."""

import json
from collections.abc import Generator
from typing import Any

import pytest
from msgspec import Raw

from inferd.client import Client, ClientError
from inferd.client.core.failures import failure_of
from inferd.client.core.offers import DaemonStatus
from inferd.client.events import (
    CallbackEvent,
    ContextFullError,
    ResponseCode,
    Session,
    SessionToolCall,
)
from inferd.client.frames import ClientBlocksDone, ClientErrorFrame
from inferd.wire.blocks import BlocksRequest
from inferd.wire.offered_facts import OfferedFacts
from inferd.wire.requests import DescribeRequest
from inferd.wire.responses import (
    BlockFrame,
    ModelsFrame,
    ProgressFrame,
    TextDelta,
    ThinkingDelta,
    Timing,
    ToolCall,
    UsageV2,
)
from tests.cases import each_case

FULL = {"prompt_tokens": 30, "n_ctx": 20, "tokens_over": 11}
FACTS = OfferedFacts(
    backend="m",
    aliases=[],
    state="ready",
    generate=True,
    embed=False,
    rerank=False,
    tools=True,
    thinking=True,
    vision=False,
    audio=False,
    structure=False,
    n_ctx=20,
)


def text(part: str) -> BlockFrame:
    return BlockFrame(id="", block=TextDelta(part))


def done(reason: str = "end_turn", n_output: int = 2) -> ClientBlocksDone:
    timing = Timing(
        queued_ms=0,
        prefill_ms=500.0,
        first_token_ms=600.0,
        decode_ms=1000.0,
        total_ms=1500.0,
        tokens_per_second=2.0,
        arrived_ns=0,
        started_ns=0,
        finished_ns=0,
    )
    usage = UsageV2(10, n_output, 5)
    return ClientBlocksDone(
        id="", stop_reason=reason, usage=usage, backend="m", timing=timing
    )


def refusal(code: str = "internal", **fields: Any) -> ClientErrorFrame:
    return ClientErrorFrame(id="", code=code, message="wrong", **fields)


class Frames:
    """A transport that answers with frames; each word of a counted message is a token."""

    def __init__(self, *frames: Any) -> None:
        self.frames = frames
        self.asked: list[BlocksRequest] = []
        self.n_closed_early = 0

    def ask(self, _: Any, request: Any, __: Any) -> Generator[Any, None, None]:
        if isinstance(request, DescribeRequest):
            yield ModelsFrame(id="", models=[FACTS])
            return
        if request.max_tokens == 0:
            n_words = len(json.dumps(to_texts(request)).split())
            yield ClientBlocksDone(
                id="", stop_reason="max_tokens", usage=UsageV2(n_words, 0), backend="m"
            )
            return
        self.asked.append(request)
        try:
            for frame in self.frames:
                if isinstance(frame, ClientErrorFrame):
                    raise failure_of(frame)
                yield frame
        except GeneratorExit:
            self.n_closed_early += 1
            raise

    def cancel(self, _: str) -> bool:
        return False

    def status(self) -> DaemonStatus:
        return DaemonStatus(state="ready")

    def close(self) -> None:
        """Close nothing."""


def to_texts(request: BlocksRequest) -> list[str]:
    found: list[str] = []
    for message in request.messages or ():
        for block in message.content:
            inner = getattr(block, "content", None) or [block]
            found += [getattr(each, "text", "") for each in inner]
    return found


class Told:
    """A callback that keeps what it is told."""

    def __init__(self, *, until: CallbackEvent | None = None) -> None:
        self.events: list[tuple[str, str, str, str]] = []
        self._until = until

    def __call__(
        self, event: CallbackEvent, content: str, name: str, call: str
    ) -> bool:
        self.events.append((event.name, content, name, call))
        return event is not self._until

    def named(self, name: str) -> list[str]:
        return [content for event, content, *_ in self.events if event == name]


def session(frames: Frames, told: Told, **options: Any) -> Session:
    client = Client()
    client._transport = frames
    return Session(client, told, **options)


def test_each_kind_of_event_is_told_with_its_content_name_and_id():
    frames = Frames(
        ProgressFrame(id="", status="queued", position=2),
        BlockFrame(id="", block=ThinkingDelta("hm")),
        text("Look:\n``"),
        text("`py\nx = 1\n"),
        text("```\nDone"),
        BlockFrame(id="", block=ToolCall("c1", "add", {"a": 1})),
        done("tool_use"),
    )
    told = Told()
    made = session(frames, told, shows_thinking=True, progress=True)
    response = made.add_message("user", "hi")
    assert told.events[:3] == [
        ("USER_PROMPT", "hi", "", ""),
        ("SYSTEM", "queued: 2", "", ""),
        ("THINKING", "hm", "", ""),
    ]
    assert "".join(told.named("CONTENT")) == "Look:\nDone"
    assert "".join(told.named("CODEBLOCK")) == "x = 1\n"
    assert ("TOOL_CALL", '{"a":1}', "add", "c1") in told.events
    assert [event for event, *_ in told.events[-2:]] == ["STATS", "STOP"]
    assert told.events[-1] == ("STOP", "tool_calls", "", "")
    stats = json.loads(told.named("STATS")[0])
    assert stats["prefill_tokens_per_second"] == 10.0
    assert stats["decode_tokens_per_second"] == 2.0
    assert (response.code, response.success) == (ResponseCode.SUCCESS, True)
    assert response.tool_calls == (SessionToolCall("c1", "add", '{"a":1}'),)
    assert json.loads(response.tool_calls_json)[0]["function"]["name"] == "add"
    assert (response.prompt_tokens, response.completion_tokens) == (10, 2)
    assert response.was_streamed
    frames.frames = (text("3"), done())
    assert made.add_message("tool", "3", "add", "c1").finish_reason == "stop"
    assert ("TOOL_RESULT", "3", "add", "c1") in told.events
    roles = [each.role for each in frames.asked[-1].messages or ()]
    assert roles == ["user", "assistant", "user"]
    assert [each.role for each in made.messages] == [
        *("user", "assistant", "tool", "assistant"),
    ]
    assert made.messages[1].tokens == 2


def test_thinking_is_told_where_it_is_shown():
    told = Told()
    session(
        Frames(BlockFrame(id="", block=ThinkingDelta("hm")), text("a"), done()), told
    ).add_message("user", "hi")
    assert told.named("THINKING") == []


@each_case("event", ["CONTENT", "CODEBLOCK", "THINKING", "TOOL_CALL", "STATS"])
def test_false_cancels_at_once_and_the_end_is_told(event):
    frames = Frames(
        BlockFrame(id="", block=ThinkingDelta("hm")),
        text("a\n```\nb\n```\n"),
        BlockFrame(id="", block=ToolCall("c1", "add", {})),
        done(),
    )
    told = Told(until=CallbackEvent[event])
    made = session(frames, told, shows_thinking=True)
    response = made.add_message("user", "hi")
    assert [each[0] for each in told.events[-2:]] == [event, "STOP"]
    assert response.finish_reason == "cancelled"
    assert frames.n_closed_early == (event != "STATS")


@each_case(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("cancelled", "cancelled"),
    ],
)
def test_why_an_answer_has_ended(reason, finish):
    told = Told()
    response = session(Frames(text("a"), done(reason)), told).add_message("user", "hi")
    assert response.finish_reason == finish == told.named("STOP")[0]


def test_other_failures_are_told_with_what_came_before():
    told = Told()
    made = session(Frames(text("par"), refusal("backend_unavailable")), told)
    response = made.add_message("user", "hi")
    assert (response.code, response.content) == (ResponseCode.ERROR, "par")
    assert told.events[-2:] == [
        ("ERROR", "backend_unavailable: wrong", "backend_unavailable", ""),
        ("STOP", "error", "", ""),
    ]
    assert made.messages[-1].content == "par"
    with pytest.raises(ClientError, match="no role 'robot'"):
        made.count_message_tokens("robot", "x")


def test_an_answer_longer_than_the_context_is_refused():
    told = Told()
    frames = Frames(text("a"), done())
    made = session(frames, told, max_tokens=20)
    response = made.add_message("user", "hi")
    assert response.code is ResponseCode.MAX_TOKENS_TOO_HIGH
    assert told.named("STOP") == ["error"]
    assert frames.asked == []
    assert made.generate(max_tokens=19).success
    assert frames.asked[0].max_tokens == 19


def test_a_prompt_is_processed_before_it_is_answered():
    told = Told()
    frames = Frames(done(n_output=0))
    made = session(frames, told, temperature=0.5)
    made.append("system", "Be short.")
    made.append("user", "hi")
    assert made.prefill() == 10
    assert frames.asked[0].prefill_only is True
    frames.frames = (text("a"), done())
    assert made.generate().content == "a"
    assert frames.asked[0].messages == frames.asked[1].messages
    assert (frames.asked[1].temperature, frames.asked[1].prefill_only) == (0.5, None)


@each_case("phase", ["prefill", "generate"])
def test_a_full_context_says_what_could_go_and_evicts_nothing(phase):
    told = Told()
    frames = Frames(refusal("invalid_request", **FULL))
    made = session(frames, told)
    made.append("system", "be short")
    for content in ("one " * 6, "two " * 6, "three " * 6):
        made.append("user", content)
        made.append("assistant", "yes")
    made.append("user", "last " * 40)
    before = [*made.messages]
    with pytest.raises(ContextFullError) as full:
        getattr(made, phase)()
    assert made.messages == before
    assert full.value.tokens_over == 11
    assert full.value.evict == [range(1, 3), range(3, 5)]  # 14 tokens
    assert full.value.response.code is ResponseCode.CONTEXT_FULL
    assert told.named("STOP") == []
    made.evict_messages(full.value.evict)
    assert [each.content for each in made.messages] == [
        "be short",
        *("three " * 6, "yes", "last " * 40),
    ]
    assert made.messages_to_evict(100) == []
    frames.frames = (text("a"), done())
    assert made.generate().success


def test_calls_and_their_results_go_together():
    told = Told()
    made = session(Frames(done()), told)
    made.append("user", "two words")
    made.append("assistant", "")
    made.messages[-1].tool_calls = [SessionToolCall("c", "add", "{}")]
    made.append("tool", "three words here", "add", "c")
    made.append("user", "last")
    call = made.messages[1].as_message().content[0]
    assert getattr(call, "input", None) == Raw("{}")
    assert made.messages_to_evict(1) == [range(3)]
    assert made.count_message_tokens("tool", "one two", "add", "c") == 2
