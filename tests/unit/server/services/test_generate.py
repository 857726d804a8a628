import gc
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import Phase, given, settings, strategies as st
from structlog.testing import capture_logs

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.events import Text, Thinking, ToolUse
from inferd.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    InvalidRequestError,
)
from inferd.limits.protocol import U32_MAX
from tests.cases import each_case
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.client_behaviour import (
    ADMISSION,
    BEHAVIOURS,
    LONG_S,
    n_answers,
    run_client,
    scripts,
)
from tests.fakes.serving import LocalServer
from tests.fakes.streams import Frame, blocks, cancel, generate

TEXT, BLOCKS = "infer.sock", "infer.v2.sock"


async def settled():
    await trio.testing.wait_all_tasks_blocked()


async def answer_of(*backends: ScriptedBackend, leaf: str = TEXT, **fields: Any):
    async with (
        LocalServer(*backends).opened() as server,
        server.connect(leaf) as client,
    ):
        frames = await client.ask("r", **fields)
        await settled()
        assert server.is_empty
    assert all(backend.is_idle for backend in backends)
    return frames


def types(frames: list[Frame]) -> list[str]:
    return [frame["type"] for frame in frames]


async def test_an_answer_is_its_tokens_and_one_done_with_all_of_it(autojump_clock):
    frames = await answer_of(ScriptedBackend(Script(tokens=("Hel", "lo"))), seed=42)
    timing = frames[-1].pop("timing")
    assert timing["total_ms"] == 0
    assert frames == [
        {"type": "token", "id": "r", "content": "Hel"},
        {"type": "token", "id": "r", "content": "lo"},
        {
            "type": "done",
            "id": "r",
            "content": "Hello",
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "cached_tokens": 0},
            "stop_reason": "end",
            "backend": "scripted",
            "seed": 42,
        },
    ]


async def test_a_v2_answer_is_its_blocks_and_one_done_without_text(autojump_clock):
    call = ToolUse(tool_call_id="tc-0", name="f", input={"a": [1]})
    said = (Thinking("hm"), Text("Hel"), Text("lo"), call)
    script = Script(blocks=said, stop_reason_v2="tool_use")
    frames = await answer_of(ScriptedBackend(script), leaf=BLOCKS, seed=42)
    timing = frames[-1].pop("timing")
    assert timing["total_ms"] == 0
    *pieces, done = frames
    assert [(frame["type"], frame["id"]) for frame in pieces] == [("frame", "r")] * 4
    assert [frame["block"] for frame in pieces] == [
        {"type": "thinking", "delta": "hm"},
        {"type": "text", "delta": "Hel"},
        {"type": "text", "delta": "lo"},
        {"type": "tool_use", "tool_call_id": "tc-0", "name": "f", "input": {"a": [1]}},
    ]
    assert done == {
        "type": "done",
        "id": "r",
        "usage": {"input_tokens": 3, "output_tokens": 4, "cached_tokens": 0},
        "stop_reason": "tool_use",
        "backend": "scripted",
        "seed": 42,
    }


async def test_a_v2_answer_without_streaming_is_a_frame_for_each_run(autojump_clock):
    said = (Text("a"), Text("b"), Thinking("c"), Thinking("d"), Text("e"))
    script = Script(blocks=said, token_delay_s=1)
    async with LocalServer(ScriptedBackend(script)).opened() as server:
        async with server.connect(BLOCKS) as client:
            first, *others = await client.ask("r", stream=False)
    assert trio.current_time() == 5
    blocks = [first["block"], *(frame["block"] for frame in others[:-1])]
    assert [block["delta"] for block in blocks] == ["ab", "cd", "e"]
    assert others[-1]["type"] == "done"


async def test_without_streaming_there_is_done_alone(autojump_clock):
    backend = ScriptedBackend(Script(tokens=("Hel", "lo")))
    [done] = await answer_of(backend, stream=False)
    assert (done["type"], done["content"]) == ("done", "Hello")


@pytest.mark.parametrize("stream", [True, None])
async def test_streaming_is_the_default(stream, autojump_clock):
    frames = await answer_of(ScriptedBackend(), stream=stream)
    assert [frame["type"] for frame in frames] == ["token", "token", "done"]


async def test_an_empty_answer_is_done_alone(autojump_clock):
    [done] = await answer_of(ScriptedBackend(), max_tokens=0)
    assert (done["content"], done["usage"]["completion_tokens"]) == ("", 0)


async def test_tokens_are_sent_as_they_come(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=10))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("r"))
        times: list[float] = []
        while await client.frame() and len(times) < 2:
            times.append(trio.current_time())
    assert times == [10, 20]


@pytest.mark.parametrize(
    ("script", "code", "text"),
    [
        (
            Script(refusal=InvalidRequestError("not so")),
            "invalid_request",
            "invalid request: not so",
        ),
        (
            Script(refusal=BackendUnavailableError("gone")),
            "backend_unavailable",
            "gone",
        ),
        (
            Script(tokens=(), failure=BackendUnavailableError("gone")),
            "backend_unavailable",
            "gone",
        ),
    ],
)
async def test_a_failure_before_the_first_token_is_one_error(
    script, code, text, autojump_clock
):
    [frame] = await answer_of(ScriptedBackend(script))
    assert (frame["id"], frame["code"], frame["message"]) == ("r", code, text)


async def test_an_overflow_tells_how_much_to_drop(autojump_clock):
    script = Script(refusal=ContextOverflowError(prompt_tokens=120, n_ctx=100))
    [frame] = await answer_of(ScriptedBackend(script))
    assert frame["code"] == "invalid_request"
    assert (frame["prompt_tokens"], frame["n_ctx"], frame["tokens_over"]) == (
        120,
        100,
        21,
    )


async def test_a_death_in_mid_stream_is_one_error_after_the_tokens(autojump_clock):
    script = Script(tokens=("a",), failure=BackendUnavailableError("it died"))
    token, error = await answer_of(ScriptedBackend(script))
    assert token["content"] == "a"
    assert (error["code"], error["message"]) == ("backend_unavailable", "it died")


async def test_a_request_that_turns_out_bad_in_mid_stream_is_one_error_after_the_tokens(
    autojump_clock,
):
    script = Script(tokens=("a",), failure=InvalidRequestError("too much work"))
    token, error = await answer_of(ScriptedBackend(script))
    assert token["content"] == "a"
    assert (error["id"], error["code"]) == ("r", "invalid_request")
    assert error["message"] == "invalid request: too much work"


async def test_a_stream_without_an_end_is_an_error(autojump_clock):
    script = Script(tokens=("a",), ends_without_done=True)
    with trio.fail_after(1):
        _, error = await answer_of(ScriptedBackend(script))
    assert (error["type"], error["id"]) == ("error", "r")
    assert error["code"] == "backend_unavailable"


async def test_a_backend_that_fails_after_its_end_adds_no_frame(autojump_clock):
    script = Script(failure_after_done=ZeroDivisionError())
    async with LocalServer(ScriptedBackend(script, Script())).opened() as server:
        async with server.connect() as client:
            with capture_logs():
                assert (await client.ask("first"))[-1]["type"] == "done"
                assert (await client.ask("second"))[-1]["id"] == "second"


async def test_no_backend_that_can_is_an_error(autojump_clock):
    mute = ScriptedBackend(capabilities=BackendCapabilities(generate=False))
    [frame] = await answer_of(mute)
    assert frame["code"] == "backend_unavailable"
    assert mute.counts.asked == 0


async def test_the_backend_that_is_ready_is_named(autojump_clock):
    down = ScriptedBackend(name="down", is_ready=False)
    frames = await answer_of(down, ScriptedBackend(name="up"))
    assert frames[-1]["backend"] == "up"


async def test_a_request_waits_for_a_backend_that_is_restarting(autojump_clock):
    backend = ScriptedBackend(is_ready=False)
    async with LocalServer(backend).opened() as server, server.connect() as client:
        await client.send(generate("r"))
        await trio.sleep(100)
        assert backend.counts.asked == 1
        backend.become_ready()
        assert (await client.answer())[-1]["type"] == "done"


async def test_a_backend_out_of_service_is_an_error_at_once(autojump_clock):
    backend = ScriptedBackend()
    backend.go_down("on fire")
    [frame] = await answer_of(backend)
    assert frame["message"] == "backend not ready: on fire"
    assert trio.current_time() == 0


async def test_one_more_than_may_wait_is_refused_with_its_id(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    server = LocalServer(backend, max_active=1, max_queued=1)
    async with server.opened(), server.connect() as a, server.connect() as b:
        await a.send(generate("runs"))
        await trio.testing.wait_all_tasks_blocked()
        await b.send(generate("waits"))
        await trio.testing.wait_all_tasks_blocked()
        async with server.connect() as c:
            for _ in range(2):  # the connection goes on
                [frame] = await c.ask("refused")
                assert (frame["id"], frame["code"]) == ("refused", "queue_full")
        assert backend.counts.asked == 2


async def test_a_prompt_is_prepared_while_its_request_waits(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server:
        async with server.connect() as first, server.connect() as second:
            for client in (first, second):
                await client.send(generate("r"))
                await trio.testing.wait_all_tasks_blocked()
            assert (backend.counts.prepared, backend.counts.started) == (2, 1)


async def test_a_prompt_is_refused_before_it_is_its_turn(autojump_clock):
    overflow = ContextOverflowError(prompt_tokens=120, n_ctx=100)
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER), Script(refusal=overflow))
    async with LocalServer(backend).opened() as server:
        async with server.connect() as first, server.connect() as second:
            await first.send(generate("runs"))
            await trio.testing.wait_all_tasks_blocked()
            [frame] = await second.ask("too long")
    assert frame["prompt_tokens"] == 120


async def test_what_a_request_left_open_is_filled_in(autojump_clock):
    backend = ScriptedBackend()
    await answer_of(backend)
    [job] = backend.jobs
    assert job.max_tokens == 1000
    assert 0 <= job.sampling.seed < U32_MAX


async def test_two_requests_have_two_seeds(autojump_clock):
    backend = ScriptedBackend()
    async with LocalServer(backend).opened() as server, server.connect() as client:
        for n in range(5):
            await client.ask(f"r{n}")
    assert len({job.sampling.seed for job in backend.jobs}) > 1


# --- timing -----------------------------------------------------------------------------


@each_case("leaf", [TEXT, BLOCKS])
@each_case("progress", [False, True])
async def test_done_tells_when_it_happened(leaf, progress, autojump_clock):
    script = Script(
        prepare_s=2, prefilled=(1, 3), tokens=("a", "b", "c"), token_delay_s=0.5
    )
    frames = await answer_of(ScriptedBackend(script), leaf=leaf, progress=progress)
    timing = frames[-1]["timing"]
    moments = [
        timing.pop(f"{moment}_ns") for moment in ("arrived", "started", "finished")
    ]
    assert timing == {
        "queued_ms": 2000,
        "prefill_ms": 500,
        "first_token_ms": 2500,
        "decode_ms": 1000,
        "total_ms": 3500,
        "tokens_per_second": 2,
    }
    assert [moment - moments[0] for moment in moments] == [0, 2 * 10**9, 3.5 * 10**9]


class Reserved(ScriptedBackend):
    """Says all that it has to say at the end."""

    @asynccontextmanager
    async def generate(self, prepared):
        async with super().generate(prepared) as speech:
            stream: Any = speech
            events, stream.events = stream.events, held_back(stream.events)
            async with aclosing(events):
                yield stream


async def held_back(events):
    yield [event async for batch in events for event in batch]


async def test_the_first_token_counts_though_its_text_is_held_back(autojump_clock):
    backend = Reserved(Script(tokens=("a", "b", "c"), token_delay_s=1))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        timing = (await client.ask())[-1]["timing"]
    assert (timing["first_token_ms"], timing["decode_ms"]) == (1000, 2000)
    assert timing["tokens_per_second"] == 1
    observed = 'inferd_first_token_seconds_sum{socket="infer.sock"} 1.0'
    assert observed in server.metrics.text()


async def test_an_answer_without_a_token_has_no_first_one(autojump_clock):
    backend = ScriptedBackend(Script(tokens=(), prepare_s=1))
    async with LocalServer(backend).opened() as server, server.connect() as client:
        timing = (await client.ask())[-1]["timing"]
    assert (timing["first_token_ms"], timing["total_ms"]) == (1000, 1000)
    assert "inferd_first_token_seconds_sum" not in server.metrics.text()


# --- deadlines --------------------------------------------------------------------------


def assert_too_late(frame: Frame | None, deadline_ms: int):
    assert frame is not None
    assert (frame["type"], frame["code"]) == ("error", "deadline_exceeded")
    assert frame["message"] == f"no answer began within {deadline_ms} ms"
    assert frame["id"] == "r"


@pytest.mark.parametrize(
    "script",
    [
        Script(prepare_s=FOR_EVER),
        Script(token_delay_s=FOR_EVER),
        Script(prefilled=(1,), token_delay_s=FOR_EVER),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_deadline_before_the_first_frame_is_an_error(
    script, stream, autojump_clock
):
    backend = ScriptedBackend(script)
    frames = await answer_of(
        backend, leaf=BLOCKS, deadline_ms=1500, stream=stream, progress=True
    )
    assert_too_late(frames[-1], 1500)
    assert types(frames[:-1]) == ["status"] * len(script.prefilled)
    assert trio.current_time() == 1.5


async def test_a_deadline_in_mid_stream_is_done_and_says_why(autojump_clock):
    backend = ScriptedBackend(Script(tokens=("a", "b", "c"), token_delay_s=1))
    *pieces, done = await answer_of(backend, leaf=BLOCKS, deadline_ms=2500)
    assert [piece["block"]["delta"] for piece in pieces] == ["a", "b"]
    assert (done["stop_reason"], done["detail"]) == ("cancelled", "deadline")
    assert done["usage"] == {"input_tokens": 3, "output_tokens": 2, "cached_tokens": 0}
    assert trio.current_time() == 2.5
    assert done["timing"]["total_ms"] == 2500


async def test_a_deadline_while_nothing_was_sent_yet_is_an_error(autojump_clock):
    backend = ScriptedBackend(Script(tokens=("a", "b", "c"), token_delay_s=1))
    [error] = await answer_of(backend, leaf=BLOCKS, deadline_ms=2500, stream=False)
    assert_too_late(error, 2500)


async def test_a_deadline_in_the_queue_is_an_error_and_frees_the_place(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server, server.connect() as first:
        await first.send(generate("first"))
        await settled()
        async with server.connect(BLOCKS) as second:
            [error] = await second.ask("r", deadline_ms=4000)
            assert_too_late(error, 4000)
            assert (server.admission.active, server.admission.waiting) == (1, 0)
    assert trio.current_time() == 4


async def test_a_deadline_counts_from_when_the_request_was_read(autojump_clock):
    backend = ScriptedBackend(Script(tokens=("a",), token_delay_s=2))
    async with (
        LocalServer(backend).opened() as server,
        server.connect(BLOCKS) as client,
    ):
        late = blocks("r", deadline_ms=1000)
        await client.send(blocks("first") + late + blocks("enough", deadline_ms=5000))
        assert (await client.answer())[-1]["stop_reason"] == "end_turn"
        assert_too_late(await client.frame(), 1000)
        assert trio.current_time() == 2
        assert (await client.answer())[-1]["stop_reason"] == "end_turn"
        assert backend.counts.asked == 2


async def test_what_is_too_late_when_its_turn_comes_needs_no_place(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=2), Script(token_delay_s=FOR_EVER))
    server = LocalServer(backend, max_queued=0)
    async with (
        server.opened(),
        server.connect(BLOCKS) as client,
        server.connect() as other,
    ):
        await client.send(blocks("first") + blocks("r", deadline_ms=1000))
        while (await client.frame() or {})["type"] != "done":
            pass
        await other.send(generate("takes the place"))
        assert_too_late(await client.frame(), 1000)


async def test_a_deadline_that_is_kept_changes_nothing(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=1))
    frames = await answer_of(backend, leaf=BLOCKS, deadline_ms=2001)
    assert frames[-1]["stop_reason"] == "end_turn"
    assert "detail" not in frames[-1]


async def test_a_deadline_while_the_client_does_not_read_frees_the_permit(
    autojump_clock,
):
    script = Script(tokens=("x" * 10_000_000, "y"), token_delay_s=1)
    async with (
        LocalServer(ScriptedBackend(script)).opened() as server,
        server.connect(BLOCKS) as client,
    ):
        await client.send(blocks("r", deadline_ms=1500))
        await trio.sleep(1.2)
        assert server.admission.active == 1
        await trio.sleep(0.4)
        assert server.admission.active == 0
        piece, done = await client.answer()
        assert len(piece["block"]["delta"]) == 10_000_000
        assert done["detail"] == "deadline"


async def test_what_was_cancelled_is_no_matter_of_its_deadline(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with (
        LocalServer(backend).opened() as server,
        server.connect(BLOCKS) as client,
    ):
        await client.send(blocks("r", deadline_ms=9000) + cancel("r"))
        [done] = await client.answer()
    assert done["stop_reason"] == "cancelled"
    assert "detail" not in done


# --- progress ---------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", [TEXT, BLOCKS])
async def test_progress_tells_each_place_and_how_far_the_prompt_is(
    leaf, autojump_clock
):
    script = Script(
        prompt_tokens=9, prefilled=(0, 4, 9), tokens=("a",), token_delay_s=1
    )
    async with LocalServer(ScriptedBackend(script)).opened() as server:
        others = [server.connect() for _ in range(3)]
        for n, other in enumerate(others):
            await other.send(generate(f"{n}"))
            await settled()
        async with server.connect(leaf) as client:
            frames = await client.ask("r", progress=True)
        for other in others:
            await other.aclose()
    assert frames[:6] == [
        {"type": "status", "id": "r", "status": "queued", "position": 3},
        {"type": "status", "id": "r", "status": "queued", "position": 2},
        {"type": "status", "id": "r", "status": "queued", "position": 1},
        {"type": "status", "id": "r", "status": "prefill", "processed": 0, "total": 9},
        {"type": "status", "id": "r", "status": "prefill", "processed": 4, "total": 9},
        {"type": "status", "id": "r", "status": "prefill", "processed": 9, "total": 9},
    ]
    assert "status" not in types(frames[6:])
    assert frames[-1]["timing"]["queued_ms"] == 3000


@each_case("leaf", [TEXT, BLOCKS])
@each_case("progress", [None, False])
async def test_without_progress_nothing_is_told_of_it(leaf, progress, autojump_clock):
    backend = ScriptedBackend(Script(prefilled=(1, 3), token_delay_s=1))
    async with LocalServer(backend).opened() as server:
        async with server.connect() as first, server.connect(leaf) as second:
            await first.send(generate("first"))
            await settled()
            frames = await second.ask("r", progress=progress)
    assert "status" not in types(frames)


async def test_progress_is_told_where_the_answer_is_not_streamed(autojump_clock):
    backend = ScriptedBackend(Script(prefilled=(3,)))
    frames = await answer_of(backend, progress=True, stream=False)
    assert types(frames) == ["status", "done"]


async def test_one_who_leaves_as_a_place_is_told_leaves_nothing(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr("inferd.wire.codec.MAX_ID_CHARS", 2_000_000)
    more_than_a_buffer = "x" * 1_000_000
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with LocalServer(backend).opened() as server, server.connect() as first:
        await first.send(generate("first"))
        await settled()
        async with server.connect() as second:
            await second.send(generate(more_than_a_buffer, progress=True))
            await settled()
            assert (server.admission.active, server.admission.waiting) == (1, 1)
        await settled()
        assert (server.admission.active, server.admission.waiting) == (1, 0)
        gc.collect()  # what was left open would complain now


# --- the log ----------------------------------------------------------------------------


async def test_the_log_line_has_the_outcome_and_counts(autojump_clock):
    backend = ScriptedBackend(Script(prepare_s=2, token_delay_s=1))
    with capture_logs() as log:
        await answer_of(backend)
    [line] = [each for each in log if each["event"] == "request_done"]
    assert line["backend"] == "scripted"
    assert (line["prompt_tokens"], line["completion_tokens"]) == (3, 2)
    assert (line["queued_ms"], line["first_token_ms"]) == (2000, 3000)
    assert line["total_ms"] == 4000


# --- whatever happens -------------------------------------------------------------------


async def die(backend: ScriptedBackend, at_s: float):
    with trio.move_on_after(LONG_S):
        await trio.sleep_until(at_s)
        backend.stop("it died")


async def watch(server: LocalServer, backend: ScriptedBackend, max_active: int):
    """See that what runs has a permit, and that there are no more of these than may be."""
    for n_quarters in range(4 * 30):
        await trio.sleep_until(0.125 + n_quarters / 4)
        assert backend.n_running <= server.admission.active <= max_active


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=150, phases=set(Phase) - {Phase.explain})
@given(
    scripts=scripts(0, 0, 1),
    behaviours=st.lists(BEHAVIOURS, min_size=1, max_size=6),
    admission=ADMISSION,
    dies_s=st.sampled_from([FOR_EVER] * 3 + [0, 0.75, 2, 4]),
)
def test_every_request_of_a_client_that_stays_is_answered_once(
    scripts, behaviours, admission, dies_s
):
    backend = ScriptedBackend(*scripts)
    server = LocalServer(
        backend, max_active=admission.max_active, max_queued=admission.max_queued
    )
    seen: list[list[Frame]] = [[] for _ in behaviours]

    async def main():
        with capture_logs(), trio.fail_after(2 * LONG_S):
            async with server.opened(), trio.open_nursery() as nursery:
                nursery.start_soon(watch, server, backend, admission.max_active)
                nursery.start_soon(die, backend, dies_s)
                for behaviour, frames in zip(behaviours, seen, strict=True):
                    client = server.connect(behaviour.leaf)
                    nursery.start_soon(run_client, client, behaviour, frames)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    for behaviour, frames in zip(behaviours, seen, strict=True):
        if behaviour.stays:
            assert n_answers(frames) == behaviour.n_requests
    assert server.is_empty
    assert backend.is_idle
