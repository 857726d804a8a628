import errno
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, Self, TypeVar

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import Phase, given, settings, strategies as st
from msgspec.structs import replace

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.events import Done, DoneV2, Text, Thinking, Token, TokenEventV2
from inferd.backend.interface import (
    EmbedResult,
    EventStream,
    RerankResult,
    StartFailedError,
)
from inferd.backend.job import (
    EmbedJob,
    GenerateJob,
    RerankJob,
    Sampling,
    TranscribeJob,
    Turn,
)
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import LimitSettings
from inferd.engine.engine import Engine
from inferd.engine.supervisor.restart_policy import RestartDelay
from inferd.errors import (
    DAEMON_STOPS,
    BackendNotReadyError,
    BackendUnavailableError,
    ContextOverflowError,
    EmbedError,
    GenerateError,
    InternalError,
    InvalidRequestError,
)
from inferd.ipc.worker import (
    Availability,
    CpuVariant,
    Drop,
    Embedded,
    Failed,
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
)
from inferd.limits.engine import (
    CHANGED_FILE_LOADS,
    PREPARE_ATTEMPTS_MAX,
    RESTART_BACKOFF_S,
)
from inferd.memory.plan import MemoryShare
from inferd.wire.responses import UsageV2
from tests.fakes.memory_coordinator import DEMAND, unlimited_coordinator
from tests.fakes.starting import start_of
from tests.fakes.worker import CAPABILITIES, MARKER, FakeWorker, Workers, ended

R = TypeVar("R")

SETTINGS = MockSettings(name="chat")
JOB = GenerateJob(
    turns=[Turn("user", "hello")],
    max_tokens=10,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)
EMBED = EmbedJob(texts=["a", "b"], dimensions=None, task=None)
RERANK = RerankJob(query="q", documents=["a", "b"])
PATIENCE_S = 100_000


class Events:
    """An observer that notes what it is told."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.able: list[BackendCapabilities] = []
        self.deaths: list[tuple[str, RestartDelay]] = []
        self.steps: list[tuple[str, str, str]] = []
        self.changes: list[str] = []
        self.boxes: list[SandboxReport] = []

    def loading(self, backend: str, loading: Loading) -> None:
        self.phases.append(loading.phase)

    def sandboxed(self, backend: str, boxed: SandboxReport) -> None:
        self.boxes.append(boxed)

    def ready(self, backend: str, capabilities: BackendCapabilities) -> None:
        self.able.append(capabilities)

    def died(self, backend: str, reason: str, pause: RestartDelay) -> None:
        self.deaths.append((reason, pause))

    def remote_changed(self, backend: str, unavailable: str) -> None:
        self.changes.append(unavailable)

    def file_changed(self, backend: str, reason: str) -> None:
        self.changes.append(reason)

    def fell_back(self, backend: str, reason: str, *, crashed: str, lower: str) -> None:
        self.steps.append((reason, crashed, lower))


class Asked:
    """One job's way through an engine."""

    def __init__(self, engine: Engine, kind: str) -> None:
        self._engine = engine
        self._kind = kind
        self.may_run = trio.Event()
        self.is_prepared = False
        self.events: list[Any] = []
        self.error: GenerateError | EmbedError | None = None
        self.over = trio.Event()
        self.scope = trio.CancelScope()

    @property
    def text(self) -> str:
        return "".join(each.text for each in self.events if isinstance(each, Token))

    @property
    def is_done(self) -> bool:
        ends = Done | DoneV2 | EmbedResult | RerankResult
        return bool(self.events) and isinstance(self.events[-1], ends)

    async def go(self) -> None:
        with self.scope:
            try:
                await self._go()
            except (GenerateError, EmbedError) as error:
                self.error = error
        self.over.set()

    async def _go(self) -> None:
        job: Any = {"embed": EMBED, "rerank": RERANK}.get(self._kind, JOB)
        async with self._engine.prepare(job) as prepared:
            self.is_prepared = True
            await self.may_run.wait()
            match self._kind:
                case "embed":
                    self.events.append(await self._engine.embed(prepared))
                case "rerank":
                    self.events.append(await self._engine.rerank(prepared))
                case "v2":
                    async with self._engine.generate_v2(prepared) as stream:
                        await self._take(stream)
                case _:
                    async with self._engine.generate(prepared) as stream:
                        await self._take(stream)

    async def _take(self, stream: EventStream[Any]) -> None:
        async for events in stream:
            assert events, "an empty batch"
            self.events += events


class LocalServer:
    """An engine, the workers that it starts, and those who ask."""

    def __init__(self, engine: Engine, workers: Workers, events: Events) -> None:
        self.engine = engine
        self.workers = workers
        self.events = events
        self.n_ready = 0
        self._nursery: trio.Nursery
        self._life = trio.CancelScope()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["LocalServer"]:
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._live)
                yield self
                self._nursery.cancel_scope.cancel()

    async def _live(self) -> None:
        with self._life:
            await self.engine.run(self._note_ready)

    def _note_ready(self) -> None:
        self.n_ready += 1

    async def end(self) -> None:
        """Cancel the engine's life, and that alone."""
        self._life.cancel()
        await settled()

    def ask(self, kind: str = "v1", *, runs: bool = True) -> Asked:
        """Have a job answered, at once or when it is told to run."""
        asked = Asked(self.engine, kind)
        if runs:
            asked.may_run.set()
        self._nursery.start_soon(asked.go)
        return asked


async def settled() -> None:
    await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def server(monkeypatch, **limits: Any) -> AsyncIterator[LocalServer]:
    """Open a server whose workers are the test's to drive."""
    workers, events = Workers(), Events()
    with monkeypatch.context() as patch:
        patch.setattr("inferd.engine.engine.start_worker", workers.start)
        set_limits = msgspec.convert(limits, LimitSettings)
        engine = Engine(
            start_of(SETTINGS, n_slots=2, limits=set_limits),
            limits=set_limits,
            coordinator=unlimited_coordinator(SETTINGS.name),
            observer=events,
        )
        async with LocalServer(engine, workers, events).opened() as opened:
            yield opened
    assert workers.living == []


@asynccontextmanager
async def ready_server(
    monkeypatch, **limits: Any
) -> AsyncIterator[tuple[LocalServer, FakeWorker]]:
    """Open a server whose first worker is ready."""
    async with server(monkeypatch, **limits) as opened:
        worker = await opened.workers.next_ready()
        await settled()
        yield opened, worker


# --- the start --------------------------------------------------------------------------


async def test_an_engine_is_ready_when_its_worker_is(monkeypatch, autojump_clock):
    async with server(monkeypatch) as home:
        worker = await home.workers.next()
        await worker.say(Loading(phase="mmap"))
        await settled()
        assert not home.engine.ready
        assert home.engine.unavailable is None
        load = await worker.get_ready()
        await settled()
        assert (load.settings, load.n_slots) == (SETTINGS, 2)
        assert home.engine.ready
        assert home.engine.name == "chat"
        assert home.engine.capabilities == CAPABILITIES
        assert (home.n_ready, home.events.able) == (1, [CAPABILITIES])
        assert home.events.phases == ["mmap"]


async def test_a_sandbox_report_is_observed_when_it_changes(
    monkeypatch, autojump_clock
):
    boxes = [SandboxReport(landlock=7, seccomp=True), SandboxReport(seccomp=True)]
    async with server(monkeypatch) as home:
        for boxed in (boxes[0], boxes[0], boxes[1]):
            worker = await home.workers.next()
            await worker.say(boxed)
            await worker.get_ready()
            await settled()
            worker.die()
        assert home.events.boxes == boxes


async def start_fails(monkeypatch, happen, **limits: Any) -> str:
    """Let something happen to the first worker; give the reason of the failed start."""
    workers = Workers()
    monkeypatch.setattr("inferd.engine.engine.start_worker", workers.start)
    set_limits = msgspec.convert(limits, LimitSettings)
    engine = Engine(
        start_of(SETTINGS, n_slots=1, limits=set_limits),
        limits=set_limits,
        coordinator=unlimited_coordinator(SETTINGS.name),
        observer=Events(),
    )
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(happen, workers)
            with pytest.raises(StartFailedError) as caught:
                await engine.run(lambda: pytest.fail("it got ready"))
    assert workers.living == []
    assert not engine.ready
    return str(caught.value)


async def test_a_first_load_that_fails_ends_the_start(monkeypatch, autojump_clock):
    async def fail(workers: Workers):
        worker = await workers.next()
        await worker.say(LoadFailed(reason="model file not found: /m.gguf"))
        worker.die(3)

    text = await start_fails(monkeypatch, fail)
    assert text == "backend chat: model file not found: /m.gguf"


async def test_a_demand_that_does_not_fit_ends_the_start(monkeypatch, autojump_clock):
    async def demand(workers: Workers):
        worker = await workers.next()
        await worker.say(replace(DEMAND, weights=2**60))

    text = await start_fails(monkeypatch, demand)
    assert text.startswith("backend chat: not enough memory: chat needs ")


async def test_a_restarted_worker_gets_the_same_share(monkeypatch, autojump_clock):
    async with server(monkeypatch) as home:
        shares = []
        for weights in (1, 2**60):
            worker = await home.workers.next()
            await worker.say(replace(DEMAND, weights=weights))
            await worker.get_ready()
            shares.append(await worker.expect(MemoryShare))
            worker.die()
        assert shares == [MemoryShare(n_slots=2, n_ctx=512)] * 2


async def test_a_first_worker_that_crashes_hints_at_doctor(monkeypatch, autojump_clock):
    async def crash(workers: Workers):
        (await workers.next()).die(-signal.SIGILL)

    text = await start_fails(monkeypatch, crash)
    assert text == "backend chat: killed by SIGILL; run: inferd doctor"


async def test_a_first_worker_that_hangs_ends_the_start(monkeypatch, autojump_clock):
    async def hang(workers: Workers):
        await workers.next()

    text = await start_fails(monkeypatch, hang, load_silence_s=300)
    assert text == "backend chat: hung: no message for 300 s"
    assert trio.current_time() == 300


async def test_cancelling_run_ends_the_worker(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        await home.end()
        assert not worker.process.is_alive


# --- variants of the CPU code -----------------------------------------------------------

LADDER = ("avx512", "avx2", "plain")


async def crash_with(workers: Workers, code: int = -signal.SIGILL) -> Load:
    """Have the next worker load the best that it may, and die of it."""
    worker = await workers.next()
    load = await worker.expect(Load)
    name, *lower = [each for each in LADDER if each not in load.crashed_variants]
    await worker.say(CpuVariant(name=name, fallback=lower[0] if lower else ""))
    worker.die(code)
    return load


async def test_a_file_that_gets_another_name_during_a_load_is_loaded_anew(
    monkeypatch, autojump_clock
):
    changed = LoadFailed(reason="it changed", is_changed_file=True)
    async with server(monkeypatch) as home:
        for number in range(1, CHANGED_FILE_LOADS):
            worker = await home.workers.next()
            await worker.expect(Load)
            await worker.say(changed)
            worker.die(3)
            await settled()
            assert home.events.changes == ["it changed"] * number
        await home.workers.next_ready()
        await settled()
        assert home.engine.ready
        assert trio.current_time() == 0


async def test_a_file_that_changes_again_and_again_is_refused(
    monkeypatch, autojump_clock
):
    async def change(workers: Workers):
        for _ in range(CHANGED_FILE_LOADS):
            worker = await workers.next()
            await worker.expect(Load)
            await worker.say(LoadFailed(reason="it changed", is_changed_file=True))
            worker.die(3)

    assert await start_fails(monkeypatch, change) == "backend chat: it changed"


async def test_a_variant_that_crashes_is_replaced_at_once_and_for_good(
    monkeypatch, autojump_clock
):
    async with server(monkeypatch) as home:
        await crash_with(home.workers)
        for n_deaths in range(2):
            worker = await home.workers.next()
            assert trio.current_time() == n_deaths * RESTART_BACKOFF_S
            assert (await worker.expect(Load)).crashed_variants == ("avx512",)
            await worker.say(Loaded(capabilities=CAPABILITIES, library="fake 1"))
            await settled()
            assert home.engine.ready
            worker.die()
        assert home.events.steps == [("killed by SIGILL", "avx512", "avx2")]


async def test_if_every_variant_crashes_none_is_blamed(monkeypatch, autojump_clock):
    async def crash(workers: Workers):
        for _ in LADDER:
            await crash_with(workers, -signal.SIGSEGV)

    text = await start_fails(monkeypatch, crash)
    assert text == (
        "backend chat: killed by SIGSEGV (with each of avx512, avx2, plain); "
        "run: inferd doctor"
    )


async def test_after_a_crash_with_all_variants_the_best_is_tried_after_a_pause(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        worker.die()
        loads = [await crash_with(home.workers) for _ in LADDER]
        await home.workers.next_ready()
        [_, (reason, pause)] = home.events.deaths
        assert [len(load.crashed_variants) for load in loads] == [0, 1, 2]
        assert reason == "killed by SIGILL (with each of avx512, avx2, plain)"
        assert pause.seconds > 0
        assert (await crash_with(home.workers)).crashed_variants == ()


@pytest.mark.parametrize("code", [-signal.SIGKILL, 3])
async def test_no_variant_is_blamed_without_a_crash(monkeypatch, autojump_clock, code):
    async with ready_server(monkeypatch) as (home, worker):
        worker.die()
        await crash_with(home.workers, code)
        load = await (await home.workers.next()).expect(Load)
        assert (load.crashed_variants, home.events.steps) == ((), [])


async def test_no_variant_is_blamed_for_a_crash_once_it_serves(
    monkeypatch, autojump_clock
):
    async with server(monkeypatch) as home:
        worker = await home.workers.next()
        await worker.say(CpuVariant(name="avx512", fallback="avx2"))
        await worker.get_ready()
        worker.die(-signal.SIGILL)
        load = await (await home.workers.next()).expect(Load)
        assert (load.crashed_variants, home.events.steps) == ((), [])


async def test_a_variant_that_has_served_is_not_blamed_for_a_crash_at_a_reload(
    monkeypatch, autojump_clock
):
    async with server(monkeypatch) as home:
        worker = await home.workers.next()
        await worker.say(CpuVariant(name="avx512", fallback="avx2"))
        await worker.get_ready()
        worker.die()
        await crash_with(home.workers, -signal.SIGABRT)
        load = await (await home.workers.next()).expect(Load)
        assert (load.crashed_variants, home.events.steps) == ((), [])
        assert [reason for reason, _ in home.events.deaths][1:] == ["killed by SIGABRT"]


# --- one job ----------------------------------------------------------------------------


async def test_a_job_is_prepared_and_run_and_needs_no_drop(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask(runs=False)
        prepare = await worker.prepare()
        assert prepare.job == JOB
        assert await worker.hear() == []
        asked.may_run.set()
        assert await worker.run(b"Hel", b"lo") == prepare.ticket
        assert await worker.hear() == []
        assert asked.text == "Hello"
        done = asked.events[-1]
        assert isinstance(done, Done)
        assert (done.stop_reason, done.usage.completion_tokens) == ("end", 2)


async def test_bytes_become_text_where_characters_end(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask()
        await worker.prepare()
        await worker.run(
            b"\xc3", b"\xa9\xe2\x82", b"\xac", b"\xf0\x9f", stop_reason="length"
        )
        await asked.over.wait()
        texts = [each.text for each in asked.events if isinstance(each, Token)]
    assert texts == ["é", "€", "\N{REPLACEMENT CHARACTER}"]
    assert asked.is_done


@pytest.mark.parametrize(
    ("kind", "text"), [("v1", "ab"), ("v2", f"a{MARKER.decode()}b")]
)
async def test_marker_tokens_are_visible_to_v2_alone(
    kind, text, monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask(kind)
        await worker.prepare()
        await worker.run(b"a", MARKER, b"b")
        await asked.over.wait()
    *said, done = asked.events
    heard = [each.text if isinstance(each, Token) else each.delta for each in said]
    assert "".join(heard) == text
    assert isinstance(done, Done | DoneV2)


async def test_an_empty_answer_is_done_alone(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask()
        await worker.prepare()
        await worker.run()
        await asked.over.wait()
    [done] = asked.events
    assert isinstance(done, Done)


async def test_jobs_of_one_step_go_to_those_who_asked(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        asked = [home.ask(runs=False) for _ in range(2)]
        tickets = [(await worker.prepare()).ticket for _ in asked]
        for each in asked:
            each.may_run.set()
        runs = await worker.hear()  # in either order: trio runs tasks in any
        assert sorted(runs, key=repr) == [Run(ticket=each) for each in sorted(tickets)]
        first, second = tickets
        await worker.say(Step(pieces=[(second, b"B"), (first, b"A")]))
        await worker.end(second, 1)
        await worker.end(first, 1)
        for each in asked:
            await each.over.wait()
    assert sorted(each.text for each in asked) == ["A", "B"]


@pytest.mark.parametrize("phase", ["preparing", "prepared", "running"])
async def test_a_job_that_is_left_is_dropped(phase, monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask(runs=phase == "running")
        ticket = (await worker.expect(Prepare)).ticket
        if phase != "preparing":
            await worker.say(PromptReady(ticket=ticket, prompt_tokens=3))
        if phase == "running":
            await worker.expect(Run)
        await settled()
        asked.scope.cancel()
        assert await worker.hear() == [Drop(ticket=ticket)]
        assert not home.engine._session.has_job(ticket)  # type: ignore[union-attr]


async def test_late_answers_to_a_job_that_was_left_are_ignored(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        left = home.ask()
        ticket = (await worker.prepare()).ticket
        await worker.expect(Run)
        left.scope.cancel()
        await worker.expect(Drop)
        await worker.speak(ticket, b"late")
        await worker.end(ticket, 1)
        asked = home.ask()
        await worker.prepare()
        await worker.run(b"mine")
        await asked.over.wait()
        assert asked.text == "mine"


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (
            lambda t: Refused(ticket=t, reason="no such role"),
            InvalidRequestError,
            "role",
        ),
        (
            lambda t: PromptOverflow(ticket=t, prompt_tokens=9, n_ctx=8),
            ContextOverflowError,
            "8: 2 too many",
        ),
        (
            lambda t: PromptOverflow(
                ticket=t, prompt_tokens=20, n_ctx=8, at_least=True
            ),
            ContextOverflowError,
            "8: at least 13 too many",
        ),
        (lambda t: Step(pieces=[(t, b"too early")]), InternalError, "for a prepare"),
        (lambda t: Step(pieces=[(t, b"x"), (t, b"y")]), InternalError, "than once"),
    ],
)
async def test_a_prompt_that_is_not_ready_is_a_failure(
    answer, error, text, monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask()
        ticket = (await worker.expect(Prepare)).ticket
        await worker.say(answer(ticket))
        await asked.over.wait()
        assert isinstance(asked.error, error)
        assert text in str(asked.error)
        assert await worker.hear() == [Drop(ticket=ticket)]


async def test_a_prepare_reply_to_a_run_ends_the_worker(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask()
        ticket = (await worker.prepare()).ticket
        await worker.expect(Run)
        await worker.say(PromptReady(ticket=ticket, prompt_tokens=3))
        await asked.over.wait()
        assert not worker.process.is_alive
    assert isinstance(asked.error, BackendUnavailableError)


# --- v2, embed, rerank ------------------------------------------------------------------

VECTORS = b"[[0.6,0.8],[1.0,0.0]]"


async def blocks_of(engine: Engine) -> list[TokenEventV2]:
    async with engine.prepare(JOB) as prepared, engine.generate_v2(prepared) as stream:
        return [event async for events in stream for event in events]


async def vectors_of(engine: Engine) -> EmbedResult:
    async with engine.prepare(EMBED) as prepared:
        return await engine.embed(prepared)


async def scores_of(engine: Engine) -> RerankResult:
    async with engine.prepare(RERANK) as prepared:
        return await engine.rerank(prepared)


class Told(Generic[R]):
    """What comes of one question."""

    def __init__(self, nursery: trio.Nursery, ask: Callable[[], Awaitable[R]]) -> None:
        self.result: R | None = None
        self.error: Exception | None = None
        self.scope = trio.CancelScope()
        self._over = trio.Event()
        nursery.start_soon(self._go, ask)

    async def _go(self, ask: Callable[[], Awaitable[R]]) -> None:
        with self.scope:
            try:
                self.result = await ask()
            except (GenerateError, EmbedError) as error:
                self.error = error
        self._over.set()

    async def wait(self) -> Self:
        await self._over.wait()
        return self


async def test_generated_text_is_parsed_in_the_workers_dialect(
    monkeypatch, autojump_clock, nursery
):
    async with server(monkeypatch) as home:
        worker = await home.workers.next()
        able = msgspec.structs.replace(CAPABILITIES, dialect="gemma4")
        await worker.get_ready(able)
        told = Told(nursery, partial(blocks_of, home.engine))
        await worker.prepare(open_thought="<|channel>")
        await worker.run(b"hm<channel|><think>", b"!")
        assert (await told.wait()).result == [
            Thinking("hm"),
            Text("<think>"),
            Text("!"),
            DoneV2(stop_reason="end_turn", usage=UsageV2(3, 2, 1)),
        ]


async def test_a_stop_string_drops_the_job(monkeypatch, autojump_clock, nursery):
    async with ready_server(monkeypatch) as (home, worker):
        job = msgspec.structs.replace(JOB, stops=("STOP",))

        async def ask():
            async with home.engine.prepare(job) as prepared:
                async with home.engine.generate_v2(prepared) as stream:
                    return [event async for events in stream for event in events]

        told = Told(nursery, ask)
        ticket = (await worker.prepare()).ticket
        await worker.expect(Run)
        await worker.speak(ticket, b"a ST", b"OP")
        *_, done = (await told.wait()).result or []
        assert isinstance(done, DoneV2)
        assert done.stop_sequence == "STOP"
        assert await worker.hear() == [Drop(ticket=ticket)]
        assert worker.process.is_alive


async def test_vectors_come_as_the_worker_wrote_them(
    monkeypatch, autojump_clock, nursery
):
    async with ready_server(monkeypatch) as (home, worker):
        told = Told(nursery, partial(vectors_of, home.engine))
        prepare = await worker.prepare(prompt_tokens=12)
        assert prepare.job == EMBED
        ticket = (await worker.expect(Run)).ticket
        assert ticket == prepare.ticket
        await worker.say(Embedded(ticket=ticket, embeddings=VECTORS, dimensions=2))
        result = (await told.wait()).result
        assert result is not None
        assert result.embeddings == [VECTORS]
        assert (result.dimensions, result.input_tokens) == (2, 12)
        assert await worker.hear() == []


async def test_vectors_come_in_parts_up_to_the_last(
    monkeypatch, autojump_clock, nursery
):
    async with ready_server(monkeypatch) as (home, worker):
        told = Told(nursery, partial(vectors_of, home.engine))
        ticket = (await worker.prepare()).ticket
        await worker.expect(Run)
        for part, is_last in ((VECTORS[:9], False), (VECTORS[9:], True)):
            await settled()
            assert told.result is None
            await worker.say(
                Embedded(ticket=ticket, embeddings=part, dimensions=2, is_last=is_last)
            )
        result = (await told.wait()).result
        assert result is not None
        assert b"".join(result.embeddings) == VECTORS
        assert await worker.hear() == []


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (Failed(ticket=1, reason="no number"), "no number"),
        (Scored(ticket=1, scores=[1.0]), "for an embed job"),
        (Embedded(ticket=1, embeddings=b" " * 90, dimensions=2), "more vectors"),
    ],
)
async def test_vectors_followed_by_another_result_are_a_failure(
    monkeypatch, autojump_clock, nursery, last, text
):
    monkeypatch.setattr("inferd.engine.session_backend.MAX_FRAME_BYTES", 99)
    async with ready_server(monkeypatch) as (home, worker):
        told = Told(nursery, partial(vectors_of, home.engine))
        ticket = (await worker.prepare()).ticket
        await worker.expect(Run)
        await worker.say(
            Embedded(
                ticket=ticket, embeddings=b"[[0.6,0.8]", dimensions=2, is_last=False
            )
        )
        await worker.say(msgspec.structs.replace(last, ticket=ticket))
        assert text in str((await told.wait()).error)


async def test_scores_come_as_the_worker_gave_them(
    monkeypatch, autojump_clock, nursery
):
    async with ready_server(monkeypatch) as (home, worker):
        told = Told(nursery, partial(scores_of, home.engine))
        assert (await worker.prepare(prompt_tokens=20)).job == RERANK
        ticket = (await worker.expect(Run)).ticket
        await worker.say(Scored(ticket=ticket, scores=[1.5, -2.0]))
        assert (await told.wait()).result == RerankResult(
            scores=[1.5, -2.0], input_tokens=20
        )


@pytest.mark.parametrize("ask", [vectors_of, scores_of])
@pytest.mark.parametrize(
    "wrong",
    [
        Step(pieces=[(1, b"x")]),
        Step(ended=[ended(1, 1)]),
        Scored(ticket=1, scores=[1.0]),
        Scored(ticket=1, scores=[1.0] * 3),
        Failed(ticket=1, reason="not finite"),
    ],
)
async def test_a_wrong_result_affects_no_other_job(
    ask, wrong, monkeypatch, autojump_clock, nursery
):
    async with ready_server(monkeypatch) as (home, worker):
        told = Told(nursery, partial(ask, home.engine))
        assert (await worker.prepare()).ticket == 1
        other = home.ask()
        await worker.expect(Run)
        ticket = (await worker.prepare()).ticket
        await worker.expect(Run)
        await worker.say(wrong)
        error = (await told.wait()).error
        assert isinstance(error, InternalError)
        text = "not finite" if isinstance(wrong, Failed) else "unexpected message"
        assert text in str(error)
        await worker.speak(ticket, b"x")
        await worker.end(ticket, 1)
        await other.over.wait()
        assert (other.text, other.is_done) == ("x", True)


@pytest.mark.parametrize("ask", [blocks_of, vectors_of, scores_of])
async def test_a_death_ends_a_run_of_any_kind_once(
    ask, monkeypatch, autojump_clock, nursery
):
    async with ready_server(monkeypatch) as (home, worker):
        told = Told(nursery, partial(ask, home.engine))
        await worker.prepare()
        await worker.expect(Run)
        worker.die(-signal.SIGSEGV)
        error = (await told.wait()).error
        assert isinstance(error, BackendUnavailableError)
        assert str(error) == "the worker is gone: killed by SIGSEGV"
        assert await (await home.workers.next_ready()).hear() == []


@pytest.mark.parametrize("ask", [blocks_of, vectors_of, scores_of])
async def test_a_run_of_any_kind_that_is_left_is_dropped(
    ask, monkeypatch, autojump_clock, nursery
):
    async with ready_server(monkeypatch) as (home, worker):
        told = Told(nursery, partial(ask, home.engine))
        ticket = (await worker.prepare()).ticket
        await worker.expect(Run)
        told.scope.cancel()
        assert await worker.hear() == [Drop(ticket=ticket)]


async def test_vectors_count_as_served(monkeypatch, autojump_clock, nursery):
    async with ready_server(monkeypatch, breaker_deaths=1) as (home, worker):
        told = Told(nursery, partial(vectors_of, home.engine))
        await worker.prepare()
        ticket = (await worker.expect(Run)).ticket
        await worker.say(Embedded(ticket=ticket, embeddings=VECTORS, dimensions=2))
        await told.wait()
        worker.die()
        await home.workers.next_ready()
        await settled()
        assert home.engine.ready


async def test_a_job_that_cannot_be_prepared_is_the_workers_failure(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask()
        ticket = (await worker.expect(Prepare)).ticket
        await worker.say(Failed(ticket=ticket, reason="it failed with KeyError"))
        await asked.over.wait()
        assert isinstance(asked.error, InternalError)
        assert str(asked.error) == "it failed with KeyError"
        assert await worker.hear() == [Drop(ticket=ticket)]
        assert worker.process.is_alive


async def test_a_run_that_failed_does_not_hide_a_prompt_that_hangs(
    monkeypatch, autojump_clock, nursery
):
    async with ready_server(monkeypatch, prepare_timeout_s=30) as (home, worker):
        running = Told(nursery, partial(vectors_of, home.engine))
        ticket = (await worker.prepare()).ticket
        await worker.expect(Run)
        left = home.ask()
        await worker.expect(Prepare)
        left.scope.cancel()
        await worker.expect(Drop)
        await worker.say(Failed(ticket=ticket, reason="not finite"))
        await running.wait()
        home.ask()
        assert await worker.hear() == [Drop(ticket=ticket)]


# --- a worker's death -------------------------------------------------------------------


async def test_a_running_job_gets_one_failure_and_is_not_run_again(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask()
        ticket = (await worker.prepare()).ticket
        await worker.expect(Run)
        await worker.speak(ticket, b"Hel")
        worker.process.error_line = "GGML_ASSERT(secret)"
        worker.die(-signal.SIGSEGV)
        await asked.over.wait()
        assert asked.text == "Hel"
        assert isinstance(asked.error, BackendUnavailableError)
        assert str(asked.error) == "the worker is gone: killed by SIGSEGV"
        assert await (await home.workers.next_ready()).hear() == []


async def test_a_prepared_job_outlives_a_worker_and_is_prepared_again(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask(runs=False)
        first = await worker.prepare()
        worker.die()
        worker = await home.workers.next_ready()
        assert await worker.hear() == []
        asked.may_run.set()
        assert await worker.prepare() == first
        await worker.run(b"at last")
        await asked.over.wait()
    assert (asked.text, asked.is_done) == ("at last", True)


async def test_a_prepared_job_waits_for_the_next_worker(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask(runs=False)
        await worker.prepare()
        worker.die()
        worker = await home.workers.next()
        asked.may_run.set()
        await trio.sleep(100)
        assert not asked.over.is_set()
        await worker.get_ready()
        await worker.prepare()
        await worker.run(b"at last")
        await asked.over.wait()
    assert asked.is_done


async def test_a_prompt_under_way_is_prepared_again(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask()
        first = await worker.expect(Prepare)
        worker.die()
        worker = await home.workers.next_ready()
        assert await worker.prepare() == first
        await worker.run(b"at last")
        await asked.over.wait()
    assert asked.is_done


async def test_a_prompt_that_kills_every_worker_is_refused(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask()
        for _ in range(PREPARE_ATTEMPTS_MAX):
            await worker.expect(Prepare)
            worker.die()
            worker = await home.workers.next_ready()
        await asked.over.wait()
        assert isinstance(asked.error, BackendUnavailableError)
        assert f"died {PREPARE_ATTEMPTS_MAX} times" in str(asked.error)
        assert await worker.hear() == []


async def test_an_overflow_after_a_restart_is_raised_before_the_first_token(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask(runs=False)
        ticket = (await worker.prepare()).ticket
        worker.die()
        worker = await home.workers.next_ready()
        asked.may_run.set()
        await worker.expect(Prepare)
        await worker.say(PromptOverflow(ticket=ticket, prompt_tokens=9, n_ctx=8))
        await asked.over.wait()
    assert isinstance(asked.error, ContextOverflowError)
    assert asked.events == []


async def test_a_worker_that_served_is_replaced_at_once(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask()
        await worker.prepare()
        await worker.run(b"x")
        await asked.over.wait()
        worker.die()
        await home.workers.next_ready()
        assert trio.current_time() == 0
        assert home.events.deaths == [
            ("killed by SIGSEGV", RestartDelay(0.0, breaker_is_open=False))
        ]


async def test_a_worker_that_cannot_be_started_is_tried_again_after_a_pause(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        home.workers.refusal = OSError(errno.EMFILE, "Too many open files")
        worker.die()
        await home.workers.next_ready()
        assert [reason for reason, _ in home.events.deaths] == [
            "killed by SIGSEGV",
            "it cannot be started: Too many open files",
        ]
        assert trio.current_time() == pytest.approx(3 * RESTART_BACKOFF_S)


async def test_on_ready_is_called_once(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        for _ in range(3):
            worker.die()
            worker = await home.workers.next_ready()
        await settled()
        assert home.n_ready == 1
        assert len(home.events.able) == 4


# --- hanging ----------------------------------------------------------------------------


async def test_a_silent_worker_is_killed_and_its_job_fails(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch, worker_silence_s=60) as (home, worker):
        asked = home.ask()
        await worker.prepare()
        await worker.expect(Run)
        await asked.over.wait()
        assert trio.current_time() == 60
        assert worker.was_killed
        assert str(asked.error) == "the worker is gone: hung: no message for 60 s"


async def test_an_idle_worker_that_is_alive_is_left_alone(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch, worker_silence_s=60) as (_, worker):
        for _ in range(20):
            await trio.sleep(50)
            await worker.say(Heartbeat())
        assert not worker.was_killed


async def test_a_worker_that_sends_nonsense_is_replaced(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        asked = home.ask()
        await worker.prepare()
        await worker.expect(Run)
        await worker.say_raw(b"\x05\x00\x00\x00rubbish")
        await asked.over.wait()
        assert isinstance(asked.error, BackendUnavailableError)
        assert not worker.process.is_alive
        await home.workers.next_ready()


async def test_a_prompt_that_takes_too_long_costs_the_worker(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch, prepare_timeout_s=30) as (home, worker):
        slow = home.ask()
        await worker.expect(Prepare)
        next_one = home.ask()
        await slow.over.wait()
        assert trio.current_time() == 30
        assert isinstance(slow.error, BackendUnavailableError)
        assert "took too long" in str(slow.error)
        assert worker.was_killed
        worker = await home.workers.next_ready()
        await worker.prepare()
        await worker.run(b"x")
        await next_one.over.wait()
        assert next_one.is_done


async def test_the_time_of_a_prepare_starts_when_it_is_sent(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch, prepare_timeout_s=30) as (home, worker):
        asked = [home.ask(runs=False) for _ in range(4)]
        for _ in asked:
            await trio.sleep(25)
            await worker.prepare()
        await settled()
        assert all(each.is_prepared for each in asked)
        assert not worker.was_killed


async def test_a_prompt_waits_until_the_worker_is_done_with_one_that_was_left(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch, prepare_timeout_s=30) as (home, worker):
        left = home.ask()
        ticket = (await worker.expect(Prepare)).ticket
        left.scope.cancel()
        await worker.expect(Drop)
        asked = home.ask()
        assert await worker.hear() == []
        await trio.sleep(20)
        await worker.say(PromptReady(ticket=ticket, prompt_tokens=3))
        await trio.sleep(1)
        await worker.expect(Prepare)
        await trio.sleep(20)
        assert not worker.was_killed
        assert asked.error is None


async def test_a_prompt_that_was_left_and_never_ends_costs_the_worker_alone(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch, prepare_timeout_s=30) as (home, worker):
        left = home.ask()
        await worker.expect(Prepare)
        left.scope.cancel()
        asked = home.ask()
        next_worker = await home.workers.next_ready()
        assert worker.was_killed
        await next_worker.prepare()
        await next_worker.run(b"x")
        await asked.over.wait()
        assert asked.is_done
        assert trio.current_time() < 31


async def test_a_prompt_that_waits_behind_one_that_was_left_outlives_the_worker(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch, prepare_timeout_s=30) as (home, worker):
        left = home.ask()
        await worker.expect(Prepare)
        left.scope.cancel()
        asked = home.ask()
        await settled()
        worker.die()
        next_worker = await home.workers.next_ready()
        await next_worker.prepare()
        await next_worker.run(b"x")
        await asked.over.wait()
        assert asked.is_done


# --- the breaker ------------------------------------------------------------------------


async def open_breaker(home: LocalServer, worker: FakeWorker, n_deaths: int) -> None:
    for _ in range(n_deaths - 1):
        worker.die()
        worker = await home.workers.next_ready()
    worker.die()
    await settled()


async def test_an_open_breaker_refuses_at_once_and_says_why(
    monkeypatch, autojump_clock
):
    limits = {"breaker_deaths": 3, "breaker_open_s": 30}
    async with ready_server(monkeypatch, **limits) as (home, worker):
        waiting = home.ask(runs=False)
        await worker.prepare()
        await open_breaker(home, worker, 3)
        opened_at = trio.current_time()
        waiting.may_run.set()
        new = home.ask()
        for each in (waiting, new):
            await each.over.wait()
            assert isinstance(each.error, BackendNotReadyError)
            assert str(each.error) == "backend not ready: killed by SIGSEGV"
        assert trio.current_time() == opened_at
        assert home.engine.unavailable == "killed by SIGSEGV"
        assert not home.engine.ready


async def test_a_remote_that_is_suspended_is_unavailable_until_it_is_tried_again(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        assert home.engine.retry_after_ms is None
        await worker.say(Availability(unavailable="no route", retry_after_ms=30_000))
        await settled()
        told_at = trio.current_time()
        await trio.sleep(10)
        left_ms = 30_000 - (trio.current_time() - told_at) * 1000
        assert home.engine.retry_after_ms == pytest.approx(left_ms, abs=100)
        assert (home.engine.unavailable, home.engine.ready) == ("no route", False)
        await worker.say(Availability())
        await settled()
        assert home.engine.ready
        assert home.engine.retry_after_ms is None


async def test_waiting_jobs_are_refused_when_the_breaker_opens(
    monkeypatch, autojump_clock
):
    limits = {"breaker_deaths": 2, "breaker_open_s": 30}
    async with ready_server(monkeypatch, **limits) as (home, worker):
        worker.die()
        worker = await home.workers.next()
        waiting = home.ask()
        await settled()
        assert not waiting.over.is_set()
        worker.die()
        await waiting.over.wait()
        assert isinstance(waiting.error, BackendNotReadyError)


async def test_a_breaker_closes_when_a_worker_is_ready_again(
    monkeypatch, autojump_clock
):
    limits = {"breaker_deaths": 2, "breaker_open_s": 30}
    async with ready_server(monkeypatch, **limits) as (home, worker):
        await open_breaker(home, worker, 2)
        opened_at = trio.current_time()
        worker = await home.workers.next()
        assert trio.current_time() == opened_at + 30
        assert home.engine.unavailable is not None
        await worker.get_ready()
        await settled()
        assert home.engine.unavailable is None
        asked = home.ask()
        await worker.prepare()
        await worker.run(b"x")
        await asked.over.wait()
        assert asked.is_done


async def test_a_worker_that_only_prepares_has_not_served(monkeypatch, autojump_clock):
    limits = {"breaker_deaths": 2, "breaker_open_s": 30}
    async with ready_server(monkeypatch, **limits) as (home, worker):
        for _ in range(2):
            home.ask(runs=False)
            await worker.prepare()
            worker.die()
            await settled()
            if home.engine.unavailable is None:
                worker = await home.workers.next_ready()
        assert home.engine.unavailable is not None


async def test_refused_prompts_harm_no_backend(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch, breaker_deaths=1) as (home, worker):
        for _ in range(20):
            asked = home.ask()
            ticket = (await worker.expect(Prepare)).ticket
            await worker.say(Refused(ticket=ticket, reason="no"))
            await worker.expect(Drop)
            await asked.over.wait()
        assert home.engine.ready
        assert home.events.deaths == []


# --- stopping ---------------------------------------------------------------------------


async def test_stop_fails_jobs_in_every_state_and_later_ones(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        prepared = home.ask(runs=False)
        await worker.prepare()
        running = home.ask()
        await worker.prepare()
        await worker.expect(Run)
        preparing, waiting = home.ask(), home.ask()
        await worker.expect(Prepare)
        home.engine.stop(DAEMON_STOPS)
        prepared.may_run.set()
        for each in (running, preparing, waiting, prepared, home.ask()):
            await each.over.wait()
            assert isinstance(each.error, BackendUnavailableError)
            assert DAEMON_STOPS in str(each.error)
        assert not home.engine.ready


async def test_stop_fails_jobs_that_wait_for_a_worker(monkeypatch, autojump_clock):
    async with ready_server(monkeypatch) as (home, worker):
        worker.die()
        await home.workers.next()
        waiting = home.ask()
        await settled()
        home.engine.stop(DAEMON_STOPS)
        await waiting.over.wait()
        assert isinstance(waiting.error, BackendUnavailableError)


async def test_a_worker_that_dies_after_stop_ends_nothing_else(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        home.engine.stop(DAEMON_STOPS)
        worker.die()
        successor = await home.workers.next_ready()
        await settled()
        assert home.workers.living == [successor]


async def test_a_worker_that_gets_ready_after_stop_serves_nobody(
    monkeypatch, autojump_clock
):
    async with ready_server(monkeypatch) as (home, worker):
        worker.die()
        worker = await home.workers.next()
        home.engine.stop(DAEMON_STOPS)
        await worker.get_ready()
        await settled()
        late = home.ask()
        await settled()
        assert not home.engine.ready
        assert isinstance(late.error, BackendUnavailableError)


# --- whatever the worker does -----------------------------------------------------------

DEEDS = st.sampled_from(
    ["answer"] * 8
    + ["refuse", "die", "crash after a word", "rubbish", "silence", "lie", "fail"]
)


@pytest.mark.slow
@settings(max_examples=100, phases=set(Phase) - {Phase.explain})
@given(
    deeds=st.lists(DEEDS, max_size=20),
    kinds=st.lists(
        st.sampled_from(["v1", "v2", "embed", "rerank"]), min_size=1, max_size=5
    ),
    leaves_s=st.lists(st.sampled_from([0.0, 0.05, 1.0, 70.0]), max_size=2),
)
def test_every_job_ends_once_whatever_its_worker_does(deeds, kinds, leaves_s):
    deeds = list(reversed(deeds))
    asked: list[Asked] = []

    async def misbehave(worker: FakeWorker):
        await worker.get_ready()
        while True:
            message = await worker.expect(Prepare | Run | Drop)  # type: ignore[arg-type]
            deed = "answer" if isinstance(message, Drop) or not deeds else deeds.pop()
            await act(worker, message, deed)

    async def drive(home: LocalServer):
        async with trio.open_nursery() as nursery:
            while True:
                worker = await home.workers.next()
                nursery.start_soon(survive, misbehave, worker)

    async def main():
        with pytest.MonkeyPatch.context() as patch:
            async with server(patch) as home, trio.open_nursery() as nursery:
                nursery.start_soon(drive, home)
                asked.extend(home.ask(kind) for kind in kinds)
                for each, seconds in zip(asked, leaves_s, strict=False):
                    each.scope.deadline = seconds
                for each in asked:
                    await each.over.wait()
                nursery.cancel_scope.cancel()
            session = home.engine._session
            assert session is None or not session._demux._queues

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    for each in asked:
        assert (
            each.is_done + (each.error is not None) + each.scope.cancelled_caught == 1
        )


async def survive(misbehave, worker: FakeWorker) -> None:
    """Let a worker misbehave until it is ended; then it is only gone."""
    try:
        await misbehave(worker)
    except (trio.ClosedResourceError, trio.BrokenResourceError, AssertionError):
        assert not worker.process.is_alive


async def act(worker: FakeWorker, message: Prepare | Run | Drop, deed: str) -> None:
    ticket = message.ticket
    match deed, message:
        case "die", _:
            worker.die()
        case "rubbish", _:
            await worker.say_raw(b"\x03\x00\x00\x00abc")
        case "silence", _:
            await trio.sleep_forever()
        case "lie", _:
            await worker.say(Loaded(capabilities=CAPABILITIES, library="again"))
        case "refuse", Prepare():
            await worker.say(Refused(ticket=ticket, reason="no"))
        case "crash after a word", Run():
            await worker.speak(ticket, b"x")
            worker.die()
        case "fail", Prepare() | Run():
            await worker.say(Failed(ticket=ticket, reason="it failed"))
        case _, Prepare():
            await worker.say(PromptReady(ticket=ticket, prompt_tokens=1))
        case _, Run():
            await obey(worker, message)
        case _:
            pass


async def obey(worker: FakeWorker, run: Run) -> None:
    ticket = run.ticket
    prepares = [each for each in worker.received if isinstance(each, Prepare)]
    [job] = [each.job for each in prepares if each.ticket == ticket]
    match job:
        case GenerateJob():
            await worker.speak(ticket, b"x", b"y")
            await worker.end(ticket, 2)
        case EmbedJob():
            await worker.say(Embedded(ticket=ticket, embeddings=VECTORS, dimensions=2))
        case RerankJob():
            await worker.say(Scored(ticket=ticket, scores=[1.0, 2.0]))
        case TranscribeJob():
            raise AssertionError
