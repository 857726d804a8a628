import json
import os

import pytest
import structlog
import trio
import trio.testing

from inferd.backend.events import MalformedToolCall, Text, Thinking, ToolUse
from inferd.errors import BackendUnavailableError, InternalError, InvalidRequestError
from inferd.server.telemetry.log import writing_log
from inferd.server.telemetry.log_file import LogFile
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.log import logged
from tests.fakes.serving import LocalServer
from tests.fakes.streams import blocks, cancel, embed, generate, rerank, to_line

SECRET = "correct horse"
ANSWER = Script(tokens=(SECRET, f" {SECRET}"))
GOOD = generate("r", text=SECRET)


async def said_of(
    monkeypatch, script: Script, *lines: bytes, leaf: str = "infer.sock"
) -> list[str]:
    """Give the log's lines of a client's whole visit."""
    with logged(monkeypatch, "debug") as log:
        async with LocalServer(ScriptedBackend(script)).opened() as server:
            async with server.connect(leaf) as client:
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
        (ANSWER, GOOD, "request_done"),
        (Script(refusal=InvalidRequestError(SECRET)), GOOD, "request_refused"),
        (
            Script(failure=BackendUnavailableError(SECRET)),
            GOOD,
            "request_error_mid_stream",
        ),
        (Script(failure=ZeroDivisionError()), GOOD, "request.crashed"),
        (Script(token_delay_s=FOR_EVER), GOOD, "request_abandoned"),
        (ANSWER, generate(text=SECRET, temperature=99), "request_refused"),
        (ANSWER, generate(text=SECRET, grammar=SECRET * 9999), "request_refused"),
        (ANSWER, to_line({"messages": SECRET}), "request_refused"),
        (ANSWER, to_line({SECRET: SECRET}), "request_refused"),
        (ANSWER, SECRET.encode() + b"\n", "request_refused"),
        (ANSWER, SECRET.encode(), "request_refused"),
        (
            ANSWER,
            generate(text=SECRET).replace(b'"user"', b'"correct horse"'),
            "request_refused",
        ),
    ],
)
async def test_no_text_of_a_prompt_or_an_answer_is_logged(
    script, line, event, monkeypatch, autojump_clock
):
    log = await said_of(monkeypatch, script, line)
    assert event in [json.loads(each)["msg"] for each in log]
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
V2_BROKEN = "v2_request_error_mid_stream"
EMBED_BROKEN = "embed_request_error_mid_stream"


@pytest.mark.parametrize(
    ("visit", "event"),
    [
        ((V2, SAID, blocks(text=SECRET, tools=[TOOL])), "v2_request_done"),
        ((V2, SAID, blocks(text=SECRET, stop=[SECRET])), "v2_request_done"),
        ((V2, HANGS, blocks(text=SECRET, deadline_ms=100)), V2_BROKEN),
        ((V2, SAID, blocks(text=SECRET, cache=SECRET)), "v2_request_refused"),
        ((V2, SAID, to_line({"messages": [SECRET]})), "v2_request_refused"),
        ((V2, HANGS, blocks("r", text=SECRET) + cancel("r")), "v2_request_done"),
        ((EMBED, SAID, embed(text=SECRET)), "embed_request_done"),
        ((EMBED, SAID, embed(task=SECRET)), "embed_request_refused"),
        ((EMBED, SAID, to_line({"input": SECRET})), "embed_request_refused"),
        ((EMBED, BREAKS, embed(text=SECRET)), EMBED_BROKEN),
        ((RERANK, SAID, rerank(text=SECRET)), "rerank_request_done"),
        ((RERANK, SAID, rerank(query=SECRET, top_n=0)), "rerank_request_refused"),
    ],
)
async def test_nor_is_what_other_surfaces_are_asked_and_answer(
    visit, event, monkeypatch, autojump_clock
):
    leaf, script, line = visit
    log = await said_of(monkeypatch, script, line, leaf=leaf)
    assert event in [json.loads(each)["msg"] for each in log]
    assert SECRET not in "\n".join(log)


async def test_no_text_of_a_refusal_at_the_gate_is_logged(monkeypatch, autojump_clock):
    with logged(monkeypatch, "debug") as log:
        backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
        async with LocalServer(backend, max_queued=0).opened() as server:
            async with server.connect() as first, server.connect() as second:
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


# --- secrets that are logged by mistake ---------------------------------------------------

KEY = "sk-proj-" + "Ab1" * 8
LEAKS = {
    "url": f"https://example.org/?api_key={KEY}",
    "headers": {"Authorization": "Bearer abcdefghij", "Accept": "*/*"},
    "reply": '{"password":"hunter2","user":"ada"}',
    "nested": [{"deep": json.dumps({"token": 'a b "c" d'})}],
    "api_key": "hunter2",
}
SPILT = (KEY, "abcdefghij", "hunter2", "a b", "c\\")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_looks_like_a_secret_is_in_no_line_of_any_sink(
    is_terminal, monkeypatch, tmp_path
):
    file = LogFile(tmp_path / "logs" / "log", max_bytes=10**6, generations=0)
    ours, theirs = os.openpty() if is_terminal else os.pipe()
    with os.fdopen(theirs, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        with writing_log("info", file):
            structlog.get_logger("here").warning("something.leaked", **LEAKS)
        written = os.read(ours, 100_000).decode()
    os.close(ours)
    kept = (tmp_path / "logs" / "log").read_text()
    assert json.loads(kept)["headers"]["Accept"] == "*/*"
    for text in (written, kept):
        assert text.count("REDACTED") == 5
        assert [each for each in SPILT if each in text] == []


def test_a_bug_that_has_a_secret_in_its_words_spills_none(monkeypatch):
    with logged(monkeypatch) as log:
        try:
            raise ValueError(f"cannot use {KEY}")  # noqa: TRY301
        except ValueError:
            structlog.get_logger("server").exception("request.crashed")
    [line] = map(json.loads, log)
    assert "cannot use [REDACTED:api-key]" in line["exception"]
    assert KEY not in log[0]
