import pytest
import trio
import trio.testing
from hypothesis import Phase, given, settings, strategies as st
from structlog.testing import capture_logs

from inferd.backend import BackendCapabilities
from inferd.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    InvalidRequestError,
)
from inferd.limits import U32_MAX
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.serving import House
from tests.fakes.streams import Frame, generate
from tests.fakes.visits import (
    ADMISSION,
    BEHAVIOURS,
    LONG_S,
    n_answers,
    scripts,
    visit,
)


async def answer_of(*backends: ScriptedBackend, **fields):
    async with House(*backends).opened() as house, house.connect() as client:
        frames = await client.ask("r", **fields)
        await trio.testing.wait_all_tasks_blocked()
        assert house.gate.active == 0
    assert all(backend.is_idle for backend in backends)
    return frames


async def test_an_answer_is_its_tokens_and_one_done_with_all_of_it(autojump_clock):
    frames = await answer_of(ScriptedBackend(Script(tokens=("Hel", "lo"))))
    assert frames == [
        {"type": "token", "id": "r", "content": "Hel"},
        {"type": "token", "id": "r", "content": "lo"},
        {
            "type": "done",
            "id": "r",
            "content": "Hello",
            "usage": {"prompt_tokens": 3, "completion_tokens": 2},
            "stop_reason": "end",
            "backend": "scripted",
        },
    ]


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
    async with House(backend).opened() as house, house.connect() as client:
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


async def test_a_stream_without_an_end_is_an_error(autojump_clock):
    script = Script(tokens=("a",), ends_without_done=True)
    with trio.fail_after(1):
        _, error = await answer_of(ScriptedBackend(script))
    assert (error["type"], error["id"]) == ("error", "r")
    assert error["code"] == "backend_unavailable"


async def test_a_backend_that_fails_after_its_end_adds_no_frame(autojump_clock):
    script = Script(failure_after_done=ZeroDivisionError())
    async with House(ScriptedBackend(script, Script())).opened() as house:
        async with house.connect() as client:
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
    async with House(backend).opened() as house, house.connect() as client:
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
    house = House(backend, max_active=1, max_queued=1)
    async with house.opened(), house.connect() as a, house.connect() as b:
        await a.send(generate("runs"))
        await trio.testing.wait_all_tasks_blocked()
        await b.send(generate("waits"))
        await trio.testing.wait_all_tasks_blocked()
        async with house.connect() as c:
            for _ in range(2):  # the connection goes on
                [frame] = await c.ask("refused")
                assert (frame["id"], frame["code"]) == ("refused", "queue_full")
        assert backend.counts.asked == 2


async def test_a_prompt_is_prepared_while_its_request_waits(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with House(backend).opened() as house:
        async with house.connect() as first, house.connect() as second:
            for client in (first, second):
                await client.send(generate("r"))
                await trio.testing.wait_all_tasks_blocked()
            assert (backend.counts.prepared, backend.counts.started) == (2, 1)


async def test_a_prompt_is_refused_before_it_is_its_turn(autojump_clock):
    overflow = ContextOverflowError(prompt_tokens=120, n_ctx=100)
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER), Script(refusal=overflow))
    async with House(backend).opened() as house:
        async with house.connect() as first, house.connect() as second:
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
    async with House(backend).opened() as house, house.connect() as client:
        for n in range(5):
            await client.ask(f"r{n}")
    assert len({job.sampling.seed for job in backend.jobs}) > 1


async def test_a_line_of_the_log_tells_how_it_went(autojump_clock):
    backend = ScriptedBackend(Script(prepare_s=2, token_delay_s=1))
    with capture_logs() as log:
        await answer_of(backend)
    [line] = [each for each in log if each["event"] == "request.finished"]
    assert line["backend"] == "scripted"
    assert (line["prompt_tokens"], line["completion_tokens"]) == (3, 2)
    assert (line["queued_ms"], line["first_token_ms"]) == (2000, 3000)
    assert line["total_ms"] == 4000


@pytest.mark.slow
@settings(max_examples=150, phases=set(Phase) - {Phase.explain})
@given(
    scripts=scripts(0, 0, 1),
    behaviours=st.lists(BEHAVIOURS, min_size=1, max_size=6),
    admission=ADMISSION,
)
def test_every_request_of_a_client_that_stays_is_answered_once(
    scripts, behaviours, admission
):
    backend = ScriptedBackend(*scripts)
    house = House(
        backend, max_active=admission.max_active, max_queued=admission.max_queued
    )
    seen: list[list[Frame]] = [[] for _ in behaviours]

    async def main():
        with capture_logs(), trio.fail_after(2 * LONG_S):
            async with house.opened(), trio.open_nursery() as nursery:
                for behaviour, frames in zip(behaviours, seen, strict=True):
                    nursery.start_soon(visit, house.connect(), behaviour, frames)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    for behaviour, frames in zip(behaviours, seen, strict=True):
        if behaviour.stays:
            assert n_answers(frames) == behaviour.n_requests
    assert (house.gate.active, house.gate.waiting) == (0, 0)
    assert backend.is_idle
