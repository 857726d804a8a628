import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import (
    Connection,
    DaemonProcess,
    Frame,
    MakeDaemon,
    blocks,
    mock,
)

pytestmark = pytest.mark.slow

V2 = "infer.v2.sock"
CALL = {"name": "weather", "arguments": {"city": "Łódź"}}
SAID = [
    "<thi",
    "nk>hm</think>",
    "Hel",
    "lo ",
    f"<tool_call>{json.dumps(CALL)}",
    "</tool_call>",
    "STOP",
    "never",
]
TOOL = {"name": "weather", "description": "of a city", "input_schema": {}}
SLOWER_MS = (100, 1000, 10_000)
"""Times to try in turn, where one is too short for a machine that is slow or busy."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemons() as make:
        yield make({"backend": [mock(tokens=SAID)]}).start()


@pytest.fixture
def client(daemon: DaemonProcess):
    with daemon.connect(V2) as connection:
        yield connection


def begun_in_time(client: Connection, **fields: Any) -> Frame:
    """Give the end of an answer without an end, by the first deadline after its start."""
    ends = (
        client.ask(blocks(id="r", deadline_ms=deadline_ms, **fields))[-1]
        for deadline_ms in SLOWER_MS
    )
    return next(end for end in ends if end["type"] == "done")


def told(frames):
    """Join what follows one another and has one type."""
    runs: list[list[str]] = []
    for block in [frame["block"] for frame in frames if frame["type"] == "frame"]:
        text = block.get("delta", "")
        if runs and runs[-1][0] == block["type"]:
            runs[-1][1] += text
        else:
            runs.append([block["type"], text])
    return runs


def test_thoughts_text_and_calls_are_blocks_of_their_own(client: Connection):
    frames = client.ask(blocks(id="a", tools=[TOOL], thinking=True, stop=["STOP"]))
    assert told(frames) == [["thinking", "hm"], ["text", "Hello "], ["tool_use", ""]]
    [call] = [each for each in frames if each.get("block", {}).get("name")]
    assert call["block"] == {
        "type": "tool_use",
        "tool_call_id": "tc-0",
        "name": "weather",
        "input": {"city": "Łódź"},
    }
    done = frames[-1]
    assert (done["stop_reason"], done["stop_sequence"]) == ("tool_use", "STOP")
    assert done["backend"] == "mock"
    assert {frame["id"] for frame in frames} == {"a"}


def test_timing_counts_the_tokens_of_a_call_that_is_kept_until_it_is_whole(
    make_daemon: MakeDaemon,
):
    tokens = ["<tool_call>", '{"name":"weather",', '"arguments":{}}', "</tool_call>"]

    def is_counted(delay_ms: int) -> bool:
        model = mock(tokens=tokens, token_delay_ms=delay_ms)
        daemon = make_daemon({"backend": [model]}).start()
        with daemon.connect(V2) as client:
            call, done = client.ask(blocks(tools=[TOOL]))
        assert call["block"]["type"] == "tool_use"
        timing = done["timing"]
        rate = timing["tokens_per_second"]
        return bool(timing["decode_ms"] > 1.5 * delay_ms) and 0 < rate < 2000 / delay_ms

    # a daemon that is held up reads tokens of a fast model at once
    assert any(map(is_counted, SLOWER_MS))


def test_a_cancelled_answer_still_has_its_warnings(make_daemon: MakeDaemon):
    tokens = ["<tool_call>{</tool_call>", *["x"] * 1000]
    daemon = make_daemon({"backend": [mock(tokens=tokens, token_delay_ms=20)]}).start()
    with daemon.connect(V2) as client:
        client.send(blocks(id="r", tools=[TOOL]))
        assert client.frame()["block"]["delta"] == tokens[0]
        client.send({"type": "cancel", "id": "r"})
        done = client.frames()[-1]
        late = begun_in_time(client, tools=[TOOL])
    warnings = [{"code": "tool_call_malformed", "raw": tokens[0]}]
    assert (done["stop_reason"], done["warnings"]) == ("cancelled", warnings)
    assert (late["detail"], late["warnings"]) == ("deadline", warnings)


def test_without_streaming_each_run_is_one_frame(client: Connection):
    frames = client.ask(blocks(stream=False, max_tokens=4))
    types = [frame["type"] for frame in frames]
    assert types == ["frame", "frame", "done"]
    assert told(frames) == [["thinking", "hm"], ["text", "Hello "]]
    assert frames[-1]["stop_reason"] == "max_tokens"


def test_v1_of_the_same_backend_says_it_raw(daemon: DaemonProcess):
    [done] = daemon.ask(stream=False, max_tokens=2)
    assert done["content"] == "<think>hm</think>"


def test_a_call_that_is_none_goes_out_as_text_with_a_warning(client: Connection):
    frames = client.ask(blocks(max_tokens=5, seed=7, tools=[TOOL]))
    raw = f"<tool_call>{json.dumps(CALL)}"
    assert told(frames)[-1] == ["text", f"Hello {raw}"]
    done = frames[-1]
    assert done["warnings"] == [{"code": "tool_call_malformed", "raw": raw}]
    assert (done["stop_reason"], done["seed"]) == ("max_tokens", 7)


def test_log_probabilities_and_progress_are_told_where_they_are_asked_for(
    client: Connection,
):
    frames = client.ask(blocks(logprobs=1, progress=True, max_tokens=3))
    assert frames[0]["type"] == "status"
    [text] = [each for each in frames if each.get("block", {}).get("type") == "text"]
    assert [each["token"] for each in text["logprobs"]] == ["Hel"]
    plain = client.ask(blocks(max_tokens=3))
    assert "logprobs" not in str(plain)
    assert "status" not in {frame["type"] for frame in plain}


def test_a_stop_token_ends_an_answer_and_is_named(client: Connection):
    done = client.ask(blocks(stop_token_ids=[3]))[-1]
    assert (done["stop_reason"], done["stop_token_id"]) == ("stop_sequence", 3)


def test_reading_the_prompt_alone_is_answered_by_no_text(client: Connection):
    [done] = client.ask(blocks(prefill_only=True))
    assert (done["stop_reason"], done["usage"]["output_tokens"]) == ("end_turn", 0)


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"top_p": 2}, "invalid_request", "invalid request: top_p 2 not in (0, 1]"),
        (
            {"tool_choice": "required", "tools": [TOOL]},
            "invalid_request",
            "invalid request: no backend holds an answer to a structure",
        ),
        (
            {"attachments": [{"kind": "video", "id": "v", "bytes": ""}]},
            "attachment_unsupported",
            "no backend takes video attachments",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_and_the_connection_kept(
    client: Connection, fields, code, message
):
    refusal = {"type": "error", "id": "a", "code": code, "message": message}
    assert client.ask(blocks(id="a", **fields)) == [refusal]
    assert client.ask(blocks(max_tokens=1))[-1]["type"] == "done"


def test_a_deadline_ends_an_answer_that_began_and_refuses_one_that_did_not(
    make_daemon: MakeDaemon,
):
    slow = mock(tokens=["x"] * 10_000, token_delay_ms=20)
    daemon = make_daemon({"backend": [slow], "admission": {"max_active": 1}}).start()
    with daemon.connect(V2) as running, daemon.connect(V2) as waiting:
        done = begun_in_time(running)
        running.send(blocks(id="a"))
        assert running.frame()["type"] == "frame"
        waiting.send(blocks(id="b", deadline_ms=100))
        assert waiting.frames() == [
            {
                "type": "error",
                "id": "b",
                "code": "deadline_exceeded",
                "message": "no answer began within 100 ms",
            }
        ]
    assert (done["stop_reason"], done["detail"]) == ("cancelled", "deadline")
    assert done["timing"]["total_ms"] >= SLOWER_MS[0]
