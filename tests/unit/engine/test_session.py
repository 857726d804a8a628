import signal
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing
from msgspec.structs import replace

from inferd.backend.job import EmbedJob
from inferd.config.kinds.mock import MockSettings
from inferd.engine.channel.demultiplexer import PrefillProgress, WorkerDiedError
from inferd.engine.channel.validator import SessionEndedError
from inferd.engine.session import WorkerSession
from inferd.ipc.encoding import encode
from inferd.ipc.worker import (
    Drop,
    Embedded,
    Ended,
    Failed,
    FromWorker,
    GetTokenTable,
    Heartbeat,
    Load,
    Loaded,
    LoadFailed,
    Loading,
    Prepare,
    PromptOverflow,
    PromptReady,
    Refused,
    Run,
    SandboxReport,
    Scored,
    Step,
    TokenTableReply,
)
from inferd.limits.engine import MAX_IPC_MESSAGE_BYTES
from inferd.memory.plan import LinearSize, MemoryDemand, MemoryShare
from inferd.wire.responses import DraftCounts, Logprob, Usage
from tests.cases import each_case
from tests.fakes.memory_coordinator import DEMAND, grant_all
from tests.fakes.streams import fill_pipe
from tests.fakes.worker import CAPABILITIES, Workers, ended

JOB = EmbedJob(texts=["a"], dimensions=None, task=None)

LOAD = Load(settings=MockSettings(name="m"), n_slots=2)
LOADED = Loaded(capabilities=CAPABILITIES, library="fake 1")
USAGE = Usage(prompt_tokens=1, completion_tokens=2)
SILENCE_S = 60


@asynccontextmanager
async def open_session():
    """A session, and the worker that the test drives."""
    workers = Workers()
    async with workers.start() as process:
        yield WorkerSession(process), await workers.next()  # type: ignore[arg-type]


async def load(session: WorkerSession, report=lambda _: None) -> Loaded:
    return await session.load(LOAD, report, grant_all, silence_s=SILENCE_S)


@asynccontextmanager
async def serving():
    """A session that serves; afterwards ``over`` says why it is over, if it is."""
    async with open_session() as (session, worker), trio.open_nursery() as nursery:
        over: list[SessionEndedError] = []

        async def serve():
            try:
                await session.serve(silence_s=SILENCE_S)
            except SessionEndedError as error:
                over.append(error)

        nursery.start_soon(serve)
        await trio.testing.wait_all_tasks_blocked()
        yield session, worker, over
        nursery.cancel_scope.cancel()


async def settled():
    await trio.testing.wait_all_tasks_blocked()


# --- loading ----------------------------------------------------------------------------


async def test_a_load_reports_phases_and_its_result(autojump_clock):
    async with open_session() as (session, worker):
        phases = [Loading(phase="mmap", path="/m"), Loading(phase="kv_cache", n_ctx=8)]
        await worker.say(*phases, LOADED)
        told: list[Loading] = []
        assert await load(session, told.append) == LOADED
        assert told == phases
        assert await worker.expect(Load) == LOAD


async def test_a_demand_gets_its_share(autojump_clock):
    async with open_session() as (session, worker):
        await worker.say(DEMAND, LOADED)
        assert await load(session) == LOADED
        await worker.expect(Load)
        assert await worker.expect(MemoryShare) == MemoryShare(n_slots=2, n_ctx=512)


async def test_a_demand_is_made_once(autojump_clock):
    async with open_session() as (session, worker):
        await worker.say(DEMAND, DEMAND)
        with pytest.raises(SessionEndedError, match="unexpected MemoryDemand"):
            await load(session)


@each_case(
    "demand",
    [
        replace(DEMAND, n_ctx=0),
        replace(DEMAND, weights=-1),
        replace(DEMAND, own=2**63),
        replace(DEMAND, cache=LinearSize(per_token=-1)),
    ],
)
async def test_an_implausible_demand_is_malformed(demand, autojump_clock):
    async with open_session() as (session, worker):
        await worker.say(demand)
        with pytest.raises(SessionEndedError, match="broke the protocol"):
            await load(session)
        assert worker.was_killed


async def test_a_load_with_too_many_messages_ends(monkeypatch, autojump_clock):
    monkeypatch.setattr("inferd.engine.session.LOAD_MESSAGES", 10)
    async with open_session() as (session, worker):
        await worker.say(*[Loading(phase="mmap")] * 10)
        with pytest.raises(SessionEndedError, match="too many messages"):
            await load(session)


async def test_a_workers_sandbox_report_is_kept(autojump_clock):
    async with open_session() as (session, worker):
        await worker.say(SandboxReport(landlock=7, seccomp=True), LOADED)
        await load(session)
        assert session.sandbox_report == SandboxReport(landlock=7, seccomp=True)


async def test_a_worker_may_wait_for_its_share_as_long_as_it_takes(autojump_clock):
    async def think(demand: MemoryDemand) -> MemoryShare:
        await trio.sleep(10 * SILENCE_S)
        return await grant_all(demand)

    async with open_session() as (session, worker):
        await worker.say(DEMAND, LOADED)
        report = list[Loading]().append
        assert await session.load(LOAD, report, think, silence_s=SILENCE_S) == LOADED


async def test_a_load_larger_than_the_socket_buffer_arrives(autojump_clock, nursery):
    async with open_session() as (session, worker):
        settings = MockSettings(name="m", tokens=("x" * 3_000_000,))
        message = Load(settings=settings, n_slots=2)
        nursery.start_soon(worker.get_ready)
        await session.load(message, lambda _: None, grant_all, silence_s=SILENCE_S)
        assert worker.received == [message]


async def test_a_worker_that_does_not_read_its_load_is_killed(autojump_clock):
    async with open_session() as (session, worker):
        fill_pipe(worker.process.stream)
        with pytest.raises(SessionEndedError, match="hung: no message for 60 s"):
            await load(session)
        assert worker.was_killed
    assert trio.current_time() == SILENCE_S


async def test_from_ready_on_stderr_is_redacted(autojump_clock):
    async with open_session() as (session, worker):
        await worker.say(Loading(phase="mmap"))
        with trio.move_on_after(1):
            await load(session)
        assert not worker.process.holds_client_text
        await worker.say(LOADED)
        await load(session)
        assert worker.process.holds_client_text


async def test_a_failed_load_has_the_reason_and_the_librarys_error(autojump_clock):
    async with open_session() as (session, worker):
        worker.process.error_line = "error: bad magic"
        await worker.say(LoadFailed(reason="not a model"))
        worker.die(3)
        with pytest.raises(
            SessionEndedError, match="not a model: error: bad"
        ) as caught:
            await load(session)
        assert caught.value.reason == "not a model"


async def test_a_failed_load_has_a_line_for_clients_and_one_for_the_operator(
    autojump_clock,
):
    async with open_session() as (session, worker):
        worker.process.error_line = "error: bad magic"
        await worker.say(LoadFailed(reason="not a model", detail="/m: not a model"))
        worker.die(3)
        with pytest.raises(SessionEndedError) as caught:
            await load(session)
        assert str(caught.value) == "/m: not a model: error: bad magic"
        assert caught.value.reason == "not a model"


async def test_a_failed_worker_that_does_not_end_keeps_nobody_waiting(autojump_clock):
    async with open_session() as (session, worker):
        await worker.say(LoadFailed(reason="not a model"))
        with trio.fail_after(2 * SILENCE_S), pytest.raises(SessionEndedError):
            await load(session)


async def test_a_worker_that_dies_while_loading_says_how(autojump_clock):
    async with open_session() as (session, worker):
        worker.die(-signal.SIGILL)
        with pytest.raises(SessionEndedError, match="^killed by SIGILL$"):
            await load(session)


async def test_a_worker_that_is_silent_while_loading_is_killed(autojump_clock):
    async with open_session() as (session, worker):
        with pytest.raises(SessionEndedError, match="hung: no message for 60 s"):
            await load(session)
        assert worker.was_killed
    assert trio.current_time() == SILENCE_S


async def test_signs_of_life_give_a_load_all_the_time_it_takes(autojump_clock, nursery):
    async with open_session() as (session, worker):

        async def get_on():
            for _ in range(10):
                await trio.sleep(SILENCE_S - 1)
                await worker.say(Loading(phase="mmap"))
            await worker.say(LOADED)

        nursery.start_soon(get_on)
        assert await load(session) == LOADED


@pytest.mark.parametrize(
    "message", [Heartbeat(), Step(), PromptReady(ticket=1, prompt_tokens=1)]
)
async def test_a_worker_that_serves_before_it_is_loaded_is_refused(
    message: FromWorker, autojump_clock
):
    async with open_session() as (session, worker):
        await worker.say(message)
        with pytest.raises(SessionEndedError, match="unexpected"):
            await load(session)


# --- answers ----------------------------------------------------------------------------


async def test_each_job_gets_its_own_answers_in_order(autojump_clock):
    async with serving() as (session, worker, _):
        a, b = session.open(1), session.open(2)
        session.send(Prepare(ticket=2, job=JOB))
        ended = Ended(ticket=1, stop_reason="end", usage=USAGE)
        await worker.say(
            PromptReady(ticket=2, prompt_tokens=5),
            Step(pieces=[(1, b"x"), (2, b"y")]),
            Step(pieces=[(1, b"z")], ended=[ended]),
        )
        await settled()
        assert await a.get_all() == [b"x", b"z", ended]
        assert await b.get_all() == [PromptReady(ticket=2, prompt_tokens=5), b"y"]


@pytest.mark.parametrize(
    "message",
    [
        PromptReady(ticket=7, prompt_tokens=1),
        Refused(ticket=7, reason="no"),
        PromptOverflow(ticket=7, prompt_tokens=9, n_ctx=8),
    ],
)
async def test_an_answer_to_a_prompt_reaches_its_job(message, autojump_clock):
    async with serving() as (session, worker, _):
        box = session.open(7)
        session.send(Prepare(ticket=7, job=JOB))
        await worker.say(message)
        assert await box.get_all() == [message]


@pytest.mark.parametrize(
    "message",
    [
        Embedded(ticket=7, embeddings=b"[]", dimensions=1),
        Scored(ticket=7, scores=[1.0]),
    ],
)
async def test_vectors_and_scores_reach_their_job_and_are_a_service(
    message, autojump_clock
):
    async with serving() as (session, worker, _):
        box = session.open(7)
        assert not session.has_served
        await worker.say(message)
        assert await box.get_all() == [message]
        assert session.has_served


async def test_all_of_a_step_reaches_its_job_in_its_order(autojump_clock):
    async with serving() as (session, worker, _):
        one, other = session.open(1), session.open(2)
        fields = {
            "token": "x",
            "id": 7,
            "bytes": [120],
            "logprob": 0,
            "top_logprobs": [],
        }
        logprob = msgspec.convert(fields, Logprob)
        end = ended(1, 1)
        step = Step(
            pieces=[(1, b"x"), (2, b"y")],
            logprobs=[(1, logprob)],
            prefilled=[(1, 3), (2, 5)],
            ended=[end],
        )
        await worker.say(step)
        assert await one.get_all() == [PrefillProgress(3), logprob, b"x", end]
        assert await other.get_all() == [PrefillProgress(5), b"y"]


async def test_each_token_of_a_step_comes_behind_its_log_probability(autojump_clock):
    async with serving() as (session, worker, _):
        one, other = session.open(1), session.open(2)
        known = [
            Logprob(token=token, id=n, bytes=[], logprob=0, top_logprobs=[])
            for n, token in enumerate("abc")
        ]
        pieces = [(1, b"a"), (1, b"b"), (2, b"x"), (1, b"c")]
        await worker.say(Step(pieces=pieces, logprobs=[(1, each) for each in known]))
        assert await one.get_all() == [known[0], b"a", known[1], b"b", known[2], b"c"]
        assert await other.get_all() == [b"x"]


@pytest.mark.parametrize(
    "message",
    [
        Step(ended=[ended(7, 1)]),
        Embedded(ticket=7, embeddings=b"[]", dimensions=1, is_last=True),
        Scored(ticket=7, scores=[1.0]),
        Failed(ticket=7, reason="not finite"),
    ],
)
async def test_a_jobs_final_result_cancels_a_block(message, autojump_clock, nursery):
    async with serving() as (session, worker, _):
        box, other = session.open(7), session.open(6)

        async def speak():
            await worker.say(Step(pieces=[(7, b"a"), (6, b"b")]))
            await trio.sleep(5)
            await worker.say(message)

        nursery.start_soon(speak)
        with box.until_over():
            await trio.sleep(50)
        assert trio.current_time() == 5
        with other.until_over():
            await trio.sleep(1)
        assert trio.current_time() == 6


async def test_a_failed_job_is_reported_and_does_not_count_as_served(autojump_clock):
    async with serving() as (session, worker, over):
        box = session.open(7)
        message = Failed(ticket=7, reason="not finite")
        await worker.say(message)
        assert await box.get_all() == [message]
        assert not session.has_served
        assert over == []


async def test_a_prompt_is_answered_by_its_own_failure_alone(autojump_clock):
    async with serving() as (session, worker, _):
        session.open(1)
        session.send(Prepare(ticket=2, job=JOB))
        await worker.say(Failed(ticket=1, reason="a run"))
        await settled()
        with trio.move_on_after(5) as scope:
            await session.finish_preparing(60, compiling=False)
        assert scope.cancelled_caught
        await worker.say(Failed(ticket=2, reason="a prompt"))
        with trio.fail_after(1):
            await session.finish_preparing(60, compiling=False)


async def test_answers_to_a_dropped_job_are_ignored(autojump_clock):
    async with serving() as (session, worker, over):
        session.open(1)
        session.send(Prepare(ticket=1, job=JOB))
        session.close(1)
        await worker.say(
            Step(pieces=[(1, b"late")]), PromptReady(ticket=1, prompt_tokens=1)
        )
        box = session.open(2)
        await worker.say(Step(pieces=[(2, b"mine")]))
        assert await box.get_all() == [b"mine"]
        assert not session.has_job(1)
        assert over == []


async def test_a_job_is_dropped_once_and_only_if_it_is_open(autojump_clock):
    async with serving() as (session, worker, _):
        session.close(1)
        session.open(1)
        session.close(1)
        session.close(1)
        assert await worker.hear() == [Drop(ticket=1)]


async def test_a_job_is_known_from_open_to_close(autojump_clock):
    async with serving() as (session, _, _):
        assert not session.has_job(1)
        box = session.open(1)
        assert session.open(1) is box
        assert session.has_job(1)
        session.close(1)
        assert not session.has_job(1)


async def test_a_worker_has_served_when_it_has_ended_a_job(autojump_clock):
    async with serving() as (session, worker, _):
        session.open(1)
        session.send(Prepare(ticket=1, job=JOB))
        await worker.say(
            PromptReady(ticket=1, prompt_tokens=1), Step(pieces=[(1, b"x")])
        )
        await settled()
        assert not session.has_served
        await worker.end(1, 1)
        await settled()
        assert session.has_served


async def test_every_open_job_fails_when_the_worker_is_gone(autojump_clock):
    async with serving() as (session, worker, _):
        boxes = [session.open(ticket) for ticket in (1, 2)]
        await worker.say(Step(pieces=[(1, b"last")]))
        await settled()
        session.fail_all("it is gone")
        assert await boxes[0].get_all() == [b"last"]
        for box in boxes:
            with pytest.raises(WorkerDiedError, match="it is gone"):
                await box.get_all()
        assert not session.has_job(1)


# --- the worker's end -------------------------------------------------------------------


async def test_a_death_ends_the_session_and_says_how(autojump_clock):
    async with serving() as (_, worker, over):
        worker.process.error_line = "GGML_ASSERT"
        worker.die(-signal.SIGABRT)
        await settled()
    [error] = over
    assert str(error) == "killed by SIGABRT: GGML_ASSERT"
    assert error.reason == "killed by SIGABRT"


async def test_results_before_a_death_still_arrive(autojump_clock):
    async with serving() as (session, worker, over):
        box = session.open(1)
        await worker.say(Step(pieces=[(1, b"last words")]))
        worker.die()
        await settled()
        assert await box.get_all() == [b"last words"]
        assert over


async def test_a_silent_worker_is_killed(autojump_clock):
    async with serving() as (_, worker, over):
        await trio.sleep(SILENCE_S - 1)
        assert not worker.was_killed
        await trio.sleep(2)
        assert worker.was_killed
        [error] = over
        assert error.reason == "hung: no message for 60 s"


@pytest.mark.parametrize("is_left", [True, False])
async def test_a_worker_without_progress_in_a_job_is_killed(is_left, autojump_clock):
    async with serving() as (session, worker, over):
        session.open(1)
        session.send(Run(ticket=1))
        for _ in range(9):
            await trio.sleep(SILENCE_S / 10)
            await worker.say(Heartbeat())
        if is_left:
            session.close(1)
        await trio.sleep(SILENCE_S / 5)
        assert [error.reason for error in over] == (
            [] if is_left else ["hung: no progress for 60 s"]
        )


async def test_a_long_prompt_that_is_read_step_by_step_is_progress(autojump_clock):
    async with serving() as (session, worker, over):
        session.open(1)
        session.send(Run(ticket=1))
        for _ in range(20):
            await trio.sleep(SILENCE_S - 1)
            await worker.say(Step(n_read=64))
        assert over == []


async def test_half_a_message_is_silence(autojump_clock):
    async with serving() as (_, worker, over):
        for byte in encode(Heartbeat())[:3]:
            await worker.say_raw(bytes([byte]))
            await trio.sleep(SILENCE_S / 3 + 1)
        assert "hung" in over[0].reason


async def test_any_message_is_a_sign_of_life(autojump_clock):
    async with serving() as (session, worker, over):
        for message in [
            Heartbeat(),
            Step(),
            PromptReady(ticket=9, prompt_tokens=1),
        ] * 5:
            session.send(Prepare(ticket=9, job=JOB))
            await trio.sleep(SILENCE_S - 1)
            await worker.say(message)
        assert over == []


@each_case(
    "data",
    [
        b"\xff\xff\xff\xff",
        (MAX_IPC_MESSAGE_BYTES + 1).to_bytes(4, "little"),
        b"\x03\x00\x00\x00abc",
        b"\x00\x00\x00\x00",
        encode(Run(ticket=1)),
        encode(LOADED),
        encode(LoadFailed(reason="too late")),
        encode(Loading(phase="mmap")),
        encode(SandboxReport()),
        encode(Step(pieces=[(1, b"for nobody")])),
        encode(Step(pieces=[(-1, b"")])),
        encode(PromptReady(ticket=1, prompt_tokens=1)),
        encode(TokenTableReply(token_table=b"nobody asked")),
    ],
)
async def test_a_worker_that_breaks_the_protocol_ends_the_session(data, autojump_clock):
    async with serving() as (_, worker, over):
        await worker.say_raw(data)
        await settled()
        [error] = over
        assert error.reason.startswith("broke the protocol")


async def test_a_worker_that_closes_its_socket_is_killed(autojump_clock):
    async with serving() as (_, worker, over):
        await worker.process.far_stream.send_eof()
        await settled()
        assert worker.was_killed
        assert over


async def test_a_worker_that_never_reads_is_killed(monkeypatch, autojump_clock):
    monkeypatch.setattr("inferd.engine.channel.transport.IPC_SEND_QUEUE_MESSAGES", 5)
    async with open_session() as (session, worker):
        fill_pipe(worker.process.stream)
        for ticket in range(5):
            session.send(Run(ticket=ticket))
        assert not worker.was_killed
        session.send(Run(ticket=5))
        assert worker.was_killed


async def test_draft_counts_come_before_their_text(autojump_clock):
    guesses = DraftCounts(drafted_tokens=2, accepted_tokens=1)
    async with serving() as (session, worker, _):
        box = session.open(1)
        await worker.say(Step(pieces=[(1, b"a"), (1, b"b")], drafted=[(1, guesses)]))
        assert await box.get_all() == [guesses, b"a", b"b"]


async def test_vectors_that_are_not_the_last_finish_nothing(autojump_clock):
    part = Embedded(ticket=1, embeddings=b"[[1]", dimensions=1, is_last=False)
    async with serving() as (session, worker, _):
        box = session.open(1)
        await worker.say(part)
        assert await box.get_all() == [part]
        assert not session.has_served
        session.close(1)
        assert await worker.hear() == [Drop(ticket=1)]


async def test_a_finished_job_needs_no_drop(autojump_clock):
    async with serving() as (session, worker, _):
        for ticket, end in enumerate(
            [
                Step(ended=[Ended(ticket=0, stop_reason="end", usage=Usage(1, 1))]),
                Embedded(ticket=1, embeddings=b"[]", dimensions=1),
                Scored(ticket=2, scores=[]),
            ]
        ):
            session.open(ticket)
            await worker.say(end)
            await settled()
            session.close(ticket)
        assert await worker.hear() == []


async def test_a_job_that_failed_is_dropped_for_it_may_have_been_prepared(
    autojump_clock,
):
    async with serving() as (session, worker, _):
        session.open(1)
        await worker.say(Failed(ticket=1, reason="no"))
        await settled()
        session.close(1)
        assert await worker.hear() == [Drop(ticket=1)]


async def test_messages_are_sent_in_order(autojump_clock):
    async with serving() as (session, worker, _):
        sent = [Run(ticket=ticket) for ticket in range(50)]
        for message in sent:
            session.send(message)
        assert await worker.hear() == sent


async def test_sending_to_a_dead_worker_is_harmless(autojump_clock):
    async with serving() as (session, worker, over):
        worker.die()
        session.send(Run(ticket=1))
        await settled()
        session.send(Run(ticket=2))
        await settled()
        assert len(over) == 1


async def test_the_token_table_is_requested_once_for_all_tasks(autojump_clock, nursery):
    async with serving() as (session, worker, over):
        told: list[bytes] = []

        async def ask():
            told.append(await session.token_table.get())

        for _ in range(3):
            nursery.start_soon(ask)
        await worker.expect(GetTokenTable)
        await worker.say(TokenTableReply(token_table=b"words"))
        await settled()
        assert told == [b"words"] * 3
        assert await worker.hear() == []
        await worker.say(TokenTableReply(token_table=b"others"))
        await settled()
        assert over


async def test_a_dead_workers_token_table_is_not_awaited(autojump_clock, nursery):
    async with serving() as (session, worker, _):
        refused = trio.Event()

        async def ask():
            with pytest.raises(WorkerDiedError):
                await session.token_table.get()
            refused.set()

        nursery.start_soon(ask)
        await worker.expect(GetTokenTable)
        session.fail_all("it is gone")
        await refused.wait()
