import json

import pytest
import trio
import trio.testing

from inferd.backend import MalformedToolCall, Text, Thinking, ToolUse
from inferd.errors import BackendUnavailableError, InternalError, InvalidRequestError
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.log import logged
from tests.fakes.serving import House
from tests.fakes.streams import blocks, cancel, embed, generate, rerank, to_line

SECRET = "correct horse"
ANSWER = Script(tokens=(SECRET, f" {SECRET}"))
GOOD = generate("r", text=SECRET)


async def said_of(
    monkeypatch, script: Script, *lines: bytes, leaf: str = "infer.sock"
) -> list[str]:
    """Give the log's lines of a client's whole visit."""
    with logged(monkeypatch, "debug") as log:
        async with House(ScriptedBackend(script)).opened() as house:
            async with house.connect(leaf) as client:
                for line in lines:
                    await client.send(line)
                await client.half_close()
                with trio.move_on_after(1):
                    await client.rest()
            await trio.testing.wait_all_tasks_blocked()
    return log


@pytest.mark.parametrize(
    ("script", "line", "event"),
    [
        (ANSWER, GOOD, "request.finished"),
        (Script(refusal=InvalidRequestError(SECRET)), GOOD, "request.refused"),
        (Script(failure=BackendUnavailableError(SECRET)), GOOD, "request.refused"),
        (Script(failure=ZeroDivisionError()), GOOD, "request.crashed"),
        (Script(token_delay_s=FOR_EVER), GOOD, "request.abandoned"),
        (ANSWER, generate(text=SECRET, temperature=99), "request.refused"),
        (ANSWER, generate(text=SECRET, grammar=SECRET * 9999), "request.refused"),
        (ANSWER, to_line({"messages": SECRET}), "client.refused"),
        (ANSWER, to_line({SECRET: SECRET}), "client.refused"),
        (ANSWER, SECRET.encode() + b"\n", "client.refused"),
        (ANSWER, SECRET.encode(), "client.refused"),
        (
            ANSWER,
            generate(text=SECRET).replace(b'"user"', b'"correct horse"'),
            "client.refused",
        ),
    ],
)
async def test_no_text_of_a_prompt_or_an_answer_is_logged(
    script, line, event, monkeypatch, autojump_clock
):
    log = await said_of(monkeypatch, script, line)
    assert event in [json.loads(each)["event"] for each in log]
    assert SECRET not in "\n".join(log)


CALL = ToolUse(tool_call_id="tc-0", name=SECRET, input={SECRET: SECRET})
SAID = Script(
    blocks=(Thinking(SECRET), Text(SECRET), CALL),
    stop_sequence=SECRET,
    warnings=(MalformedToolCall(SECRET),),
)
TOOL = {"name": SECRET, "description": SECRET, "input_schema": {SECRET: SECRET}}


V2, EMBED, RERANK = "infer.v2.sock", "infer.embed.sock", "infer.rerank.sock"
HANGS = Script(token_delay_s=FOR_EVER)
BREAKS = Script(failure=InternalError(SECRET))


@pytest.mark.parametrize(
    ("visit", "event"),
    [
        ((V2, SAID, blocks(text=SECRET, tools=[TOOL])), "request.finished"),
        ((V2, SAID, blocks(text=SECRET, stop=[SECRET])), "request.finished"),
        ((V2, HANGS, blocks(text=SECRET, deadline_ms=100)), "request.refused"),
        ((V2, SAID, blocks(text=SECRET, cache=SECRET)), "request.refused"),
        ((V2, SAID, to_line({"messages": [SECRET]})), "client.refused"),
        ((V2, HANGS, blocks("r", text=SECRET) + cancel("r")), "request.finished"),
        ((EMBED, SAID, embed(text=SECRET)), "request.finished"),
        ((EMBED, SAID, embed(task=SECRET)), "request.refused"),
        ((EMBED, SAID, to_line({"input": SECRET})), "client.refused"),
        ((EMBED, BREAKS, embed(text=SECRET)), "request.refused"),
        ((RERANK, SAID, rerank(text=SECRET)), "request.finished"),
        ((RERANK, SAID, rerank(query=SECRET, top_n=0)), "request.refused"),
    ],
)
async def test_nor_is_what_other_surfaces_are_asked_and_answer(
    visit, event, monkeypatch, autojump_clock
):
    leaf, script, line = visit
    log = await said_of(monkeypatch, script, line, leaf=leaf)
    assert event in [json.loads(each)["event"] for each in log]
    assert SECRET not in "\n".join(log)


async def test_no_text_of_a_refusal_at_the_gate_is_logged(monkeypatch, autojump_clock):
    with logged(monkeypatch, "debug") as log:
        backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
        async with House(backend, max_queued=0).opened() as house:
            async with house.connect() as first, house.connect() as second:
                await first.send(GOOD)
                await trio.testing.wait_all_tasks_blocked()
                await second.send(GOOD)
                assert (await second.answer())[0]["code"] == "queue_full"
    assert "queue_full" in [json.loads(each).get("code") for each in log]
    assert SECRET not in "\n".join(log)


async def test_only_so_much_of_an_id_is_logged(monkeypatch, autojump_clock):
    log = await said_of(monkeypatch, ANSWER, generate("i" * 500))
    assert "i" * 128 in "\n".join(log)
    assert "i" * 129 not in "\n".join(log)
