import msgspec
import pytest
import trio
import trio.testing

from inferd.backend.events import (
    AudioRead,
    Done,
    DoneV2,
    Progress,
    Text,
    Thinking,
    Token,
    ToolUse,
)
from inferd.backend.interface import Backend, StartFailedError
from inferd.backend.job import EmbedJob, GenerateJob, RerankJob, Sampling, Turn
from inferd.errors import (
    BackendNotReadyError,
    BackendUnavailableError,
    ContextOverflowError,
)
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.fds import memfds
from tests.fakes.media import speech

JOB = GenerateJob(
    turns=[Turn("user", "hello")],
    max_tokens=100,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)


EMBED = EmbedJob(texts=["a"], dimensions=None, task=None)
RERANK = RerankJob(query="q", documents=["a", "b"])


async def events_of(backend: Backend, job: GenerateJob = JOB):
    async with (
        backend.prepare(job) as prepared,
        backend.generate(prepared) as stream,
    ):
        events = [event async for events in stream for event in events]
        assert stream.n_tokens == sum(isinstance(event, Token) for event in events)
        return events


async def blocks_of(backend: Backend, job: GenerateJob = JOB):
    async with (
        backend.prepare(job) as prepared,
        backend.generate_v2(prepared) as stream,
    ):
        return [event async for events in stream for event in events]


async def vectors_of(backend: Backend):
    async with backend.prepare(EMBED) as prepared:
        return await backend.embed(prepared)


async def scores_of(backend: Backend):
    async with backend.prepare(RERANK) as prepared:
        return await backend.rerank(prepared)


async def test_a_stream_is_its_tokens_and_one_done(autojump_clock):
    backend = ScriptedBackend(Script(tokens=("a", "b"), token_delay_s=2))
    *tokens, done = await events_of(backend)
    assert tokens == [Token("a"), Token("b")]
    assert isinstance(done, Done)
    assert done.usage.completion_tokens == 2
    assert trio.current_time() == 4
    assert backend.is_idle
    assert backend.counts.done == 1


async def test_v2_says_blocks_or_the_tokens_as_text(autojump_clock):
    call = ToolUse(tool_call_id="tc-0", name="f", input={})
    backend = ScriptedBackend(Script(blocks=(Thinking("hm"), call)), Script())
    *blocks, done = await blocks_of(backend)
    assert blocks == [Thinking("hm"), call]
    assert isinstance(done, DoneV2)
    assert (done.stop_reason, done.usage.output_tokens) == ("end_turn", 2)
    assert (await blocks_of(backend))[:2] == [Text("one "), Text("two")]
    assert backend.is_idle


async def test_progress_is_told_to_a_job_that_wants_it_alone(autojump_clock):
    backend = ScriptedBackend(Script(prefilled=(1, 3)))
    curious = msgspec.structs.replace(JOB, wants_progress=True)
    for events in (
        await events_of(backend, curious),
        await blocks_of(backend, curious),
    ):
        assert events[:2] == [Progress(1, 3), Progress(3, 3)]
    assert (await events_of(backend))[0] == Token("one ")


async def test_vectors_and_scores_come_in_their_time(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=2, scores=(1.0, 2.0)))
    vectors = await vectors_of(backend)
    assert (b"".join(vectors.embeddings), vectors.dimensions) == (b"[[0.6,0.8]]", 2)
    assert (await scores_of(backend)).scores == [1.0, 2.0]
    assert trio.current_time() == 4
    assert (backend.counts.done, backend.is_idle) == (2, True)
    assert (await scores_of(ScriptedBackend())).scores == [0.0, 0.0]


@pytest.mark.parametrize("ask", [vectors_of, scores_of, blocks_of])
async def test_whatever_is_asked_may_fail_or_be_left(ask, autojump_clock):
    failing = ScriptedBackend(Script(failure=BackendUnavailableError("gone")))
    with pytest.raises(BackendUnavailableError):
        await ask(failing)
    hanging = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    with trio.move_on_after(5):
        await ask(hanging)
    assert (failing.counts.failed, failing.counts.cancelled) == (1, 0)
    assert (hanging.counts.failed, hanging.counts.cancelled) == (0, 1)


async def test_a_run_may_fail_as_it_is_left(autojump_clock):
    backend = ScriptedBackend(Script(failure_at_exit=ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        await events_of(backend)
    assert backend.is_idle


async def test_each_job_has_its_script_and_the_last_one_repeats(autojump_clock):
    backend = ScriptedBackend(Script(tokens=("a",)), Script(tokens=("b",)))
    firsts = [(await events_of(backend))[0] for _ in range(3)]
    assert firsts == [Token("a"), Token("b"), Token("b")]


@pytest.mark.parametrize(
    "script",
    [
        Script(refusal=ContextOverflowError(9, 8)),
        Script(failure=BackendUnavailableError("gone")),
        Script(failure_after_done=ZeroDivisionError()),
    ],
)
async def test_a_scripted_failure_is_raised_and_leaves_nothing(script, autojump_clock):
    backend = ScriptedBackend(script)
    failure = script.refusal or script.failure or script.failure_after_done
    with pytest.raises(type(failure)):
        await events_of(backend)
    assert backend.is_idle
    assert backend.counts.cancelled == 0


async def test_a_stream_may_end_without_done(autojump_clock):
    backend = ScriptedBackend(Script(tokens=("a",), ends_without_done=True))
    assert await events_of(backend) == [Token("a")]


@pytest.mark.parametrize(
    "script", [Script(prepare_s=FOR_EVER), Script(token_delay_s=FOR_EVER)]
)
async def test_a_job_that_is_left_is_cancelled(script, autojump_clock):
    backend = ScriptedBackend(script)
    with trio.move_on_after(5):
        await events_of(backend)
    assert backend.is_idle
    assert backend.counts.cancelled == 1


async def test_a_job_waits_for_a_backend_that_is_restarting(autojump_clock, nursery):
    backend = ScriptedBackend(is_ready=False)
    nursery.start_soon(events_of, backend)
    await trio.testing.wait_all_tasks_blocked()
    assert (backend.n_held, backend.counts.prepared) == (1, 0)
    backend.become_ready()
    await trio.testing.wait_all_tasks_blocked()
    assert backend.counts.done == 1


async def test_a_backend_out_of_service_says_why(autojump_clock):
    backend = ScriptedBackend()
    backend.go_down("on fire")
    assert (backend.ready, backend.unavailable) == (False, "on fire")
    with pytest.raises(BackendNotReadyError, match="on fire"):
        await events_of(backend)


async def test_stop_fails_jobs_now_and_later(autojump_clock, nursery):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    nursery.start_soon(stop_soon, backend)
    with pytest.raises(BackendUnavailableError, match="enough"):
        await events_of(backend)
    with pytest.raises(BackendUnavailableError, match="enough"):
        await events_of(backend)
    assert backend.counts.failed == 2


async def stop_soon(backend: ScriptedBackend):
    await trio.sleep(1)
    backend.stop("enough")


async def test_it_says_once_that_it_is_ready(autojump_clock, nursery):
    backend = ScriptedBackend(is_ready=False)
    said: list[str] = []
    nursery.start_soon(backend.run, lambda: said.append("ready"))
    await trio.testing.wait_all_tasks_blocked()
    assert said == []
    backend.become_ready()
    backend.go_down()
    backend.become_ready()
    await trio.testing.wait_all_tasks_blocked()
    assert said == ["ready"]
    nursery.cancel_scope.cancel()


async def test_a_start_that_fails_raises():
    backend = ScriptedBackend(is_ready=False)
    backend.fail_to_start("no such model")
    with pytest.raises(StartFailedError, match="no such model"):
        await backend.run(lambda: None)


async def test_speech_is_said_once_open_sound_has_ended(autojump_clock):
    backend = ScriptedBackend(Script(tokens=("a", "b")))
    with memfds(b"1234") as fds:
        async with (
            backend.prepare(speech(4), fds) as prepared,
            backend.transcribe(prepared) as stream,
        ):
            batches = aiter(stream)
            backend.append_audio(prepared, 8, is_last=False)
            assert await anext(batches) == [AudioRead(8)]
            backend.append_audio(prepared, 12, is_last=True)
            events = [each async for batch in batches for each in batch]
    assert events[:-1] == [AudioRead(12), Text("a"), Text("b")]
    assert isinstance(events[-1], DoneV2)
    assert backend.media == [[b"1234"]]


async def test_who_waits_for_sound_hears_that_it_is_stopped(autojump_clock):
    backend = ScriptedBackend()
    with memfds(b"") as fds, pytest.raises(BackendUnavailableError):
        async with (
            backend.prepare(speech(), fds) as prepared,
            backend.transcribe(prepared) as stream,
        ):
            backend.stop("gone")
            await anext(aiter(stream))
    assert backend.is_idle
