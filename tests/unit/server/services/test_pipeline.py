import dataclasses
from contextlib import suppress

import msgspec
import pytest
import trio
import trio.testing

from inferd import surfaces
from inferd.admission.control import Admission
from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.interface import J
from inferd.backend.job import (
    EmbedJob,
    GenerateJob,
    RenderedJob,
    Sampling,
    ToolSpec,
    Turn,
)
from inferd.config.served import StoreView
from inferd.config.settings import Config, ModelsSettings
from inferd.errors import (
    BackendUnavailableError,
    DrainingError,
    InferdError,
    InvalidRequestError,
    ModelNotFoundError,
    QueueFullError,
)
from inferd.resolve.request import ResolvedRequest
from inferd.routing import EMBEDS, GENERATES, ModelNames
from inferd.server.identity.peer import Peer
from inferd.server.loading.store_models import UNREAD, StoreModels
from inferd.server.queue.requests import RequestQueue
from inferd.server.request_context import RequestContext
from inferd.server.services.pipeline import OnPosition, Pipeline, Reports, resolved_job
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend

PEER = Peer(pid=17, uid=1000, gid=100)
JOB = EmbedJob(texts=["a"], dimensions=None, task=None)
PLAN = ResolvedRequest(job=JOB, needs=(EMBEDS,))


def make_pipeline(*backends: ScriptedBackend, max_queued: int = 10) -> Pipeline:
    return Pipeline(
        backends, RequestQueue(Admission(max_active=1, max_queued=max_queued))
    )


def begin(uid: int = 1000) -> RequestContext:
    peer = Peer(pid=17, uid=uid, gid=100)
    return RequestContext(peer, surfaces.EMBED, "r", trio.current_time(), n_bytes=17)


def is_free(pipeline: Pipeline) -> bool:
    turns = pipeline.queue
    return turns.count_active() == turns.count_waiting() == 0


def admitted(
    pipeline: Pipeline,
    plan: ResolvedRequest[J],
    context: RequestContext,
    *,
    on_position: OnPosition | None = None,
):
    return pipeline.admit(
        plan, context, resolved_job(plan), reports=Reports(on_position)
    )


async def hold(
    pipeline: Pipeline, plan: ResolvedRequest[EmbedJob], context: RequestContext
):
    async with admitted(pipeline, plan, context):
        await trio.sleep_forever()


async def test_inside_there_is_a_permit_a_backend_and_a_prepared_job(
    autojump_clock,
):
    backend = ScriptedBackend(Script(prepare_s=2))
    pipeline, context = make_pipeline(backend), begin()
    async with admitted(pipeline, PLAN, context) as (chosen, prepared):
        assert (chosen, prepared.job) == (backend, JOB)
        assert pipeline.queue.count_active() == 1
        assert (context.backend, context.input_tokens) == ("scripted", 3)
        assert context.started_at == 2
        assert context.permit is not None
    assert is_free(pipeline)
    assert backend.is_idle


async def test_a_waiting_request_is_prepared_while_another_runs(
    autojump_clock, nursery
):
    backend = ScriptedBackend()
    pipeline = make_pipeline(backend)
    first, second = begin(), begin()
    for context in (first, second):
        nursery.start_soon(hold, pipeline, PLAN, context)
        await trio.testing.wait_all_tasks_blocked()
    assert backend.counts.prepared == 2
    assert (first.started_at, second.started_at) == (0, None)
    assert (second.backend, second.input_tokens) == ("scripted", 3)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("priorities", [(0, 5), (5, 0)])
async def test_priorities_order_the_requests_of_one_user(
    priorities, autojump_clock, nursery
):
    pipeline = make_pipeline(ScriptedBackend())
    nursery.start_soon(hold, pipeline, PLAN, begin())
    waiting: list[RequestContext] = []
    for priority in priorities:
        waiting.append(begin())
        plan = ResolvedRequest(job=JOB, needs=(EMBEDS,), priority=priority)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(hold, pipeline, plan, waiting[-1])
    await trio.testing.wait_all_tasks_blocked()
    expected = waiting if priorities[0] > priorities[1] else waiting[::-1]
    assert pipeline.queue.order() == [each.permit for each in expected]
    nursery.cancel_scope.cancel()


async def test_another_user_s_priority_changes_nothing(autojump_clock, nursery):
    pipeline = make_pipeline(ScriptedBackend())
    contexts = [begin(3), begin(1), begin(2)]
    for context, priority in zip(contexts, (0, 0, 9), strict=True):
        plan = ResolvedRequest(job=JOB, needs=(EMBEDS,), priority=priority)
        nursery.start_soon(hold, pipeline, plan, context)
        await trio.testing.wait_all_tasks_blocked()
    assert pipeline.queue.order() == [each.permit for each in contexts[1:]]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("backend", "error"),
    [
        (
            ScriptedBackend(Script(refusal=InvalidRequestError("no"))),
            InvalidRequestError,
        ),
        (
            ScriptedBackend(capabilities=BackendCapabilities()),
            BackendUnavailableError,
        ),
    ],
)
async def test_a_request_that_fails_frees_its_place(backend, error):
    pipeline = make_pipeline(backend)
    with pytest.raises(error):
        async with admitted(pipeline, PLAN, begin()):
            pytest.fail("it was let in")
    assert is_free(pipeline)
    assert backend.is_idle


async def test_no_backend_prepares_when_the_queue_is_full(autojump_clock, nursery):
    backend = ScriptedBackend()
    pipeline = make_pipeline(backend, max_queued=0)
    nursery.start_soon(hold, pipeline, PLAN, begin())
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(QueueFullError):
        async with admitted(pipeline, PLAN, begin()):
            pytest.fail("it was let in")
    assert backend.counts.asked == 1
    nursery.cancel_scope.cancel()


async def test_a_rejected_request_leaves_nothing(autojump_clock, nursery):
    backend = ScriptedBackend()
    pipeline = make_pipeline(backend)
    nursery.start_soon(hold, pipeline, PLAN, begin())
    await trio.testing.wait_all_tasks_blocked()

    async def turn_away():
        await trio.sleep(1)
        pipeline.queue.reject_waiting()

    nursery.start_soon(turn_away)
    with pytest.raises(DrainingError):
        async with admitted(pipeline, PLAN, begin()):
            pytest.fail("it was let in")
    assert backend.n_held == 1
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "script", [Script(prepare_s=FOR_EVER), Script(token_delay_s=FOR_EVER)]
)
async def test_a_cancelled_request_leaves_nothing(script, autojump_clock):
    backend = ScriptedBackend(script)
    pipeline = make_pipeline(backend)
    with trio.move_on_after(1):
        await hold(pipeline, PLAN, begin())
    assert is_free(pipeline)
    assert backend.is_idle


async def test_a_failure_inside_gives_the_permit_back():
    backend = ScriptedBackend()
    pipeline = make_pipeline(backend)
    with pytest.raises(ZeroDivisionError):
        async with admitted(pipeline, PLAN, begin()):
            raise ZeroDivisionError
    assert is_free(pipeline)
    assert backend.is_idle


async def test_a_request_cancelled_before_takes_no_place(autojump_clock):
    backend = ScriptedBackend()
    pipeline, context = make_pipeline(backend, max_queued=0), begin()
    context.cancel()
    with context.scope:
        async with admitted(pipeline, PLAN, context):
            pytest.fail("it was let in")
    assert context.scope.cancelled_caught
    assert backend.counts.asked == 0
    assert context.permit is None


async def test_positions_are_reported_until_the_permit(autojump_clock, nursery):
    pipeline = make_pipeline(ScriptedBackend())
    first = begin()
    nursery.start_soon(hold_a_while, pipeline, first)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(hold_a_while, pipeline, begin())
    await trio.testing.wait_all_tasks_blocked()
    told: list[tuple[float, int]] = []

    async def tell(position: int):
        told.append((trio.current_time(), position))

    async with admitted(pipeline, PLAN, begin(), on_position=tell):
        assert told == [(0, 2), (1, 1)]
        assert trio.current_time() == 2


async def test_a_client_that_does_not_read_its_position_runs_all_the_same(
    autojump_clock, nursery
):
    pipeline = make_pipeline(ScriptedBackend())
    nursery.start_soon(hold_a_while, pipeline, begin())
    await trio.testing.wait_all_tasks_blocked()

    async def stall(_: int):
        await trio.sleep(1000)

    async with admitted(pipeline, PLAN, begin(), on_position=stall):
        assert trio.current_time() == 1


async def hold_a_while(pipeline: Pipeline, context: RequestContext):
    async with admitted(pipeline, PLAN, context):
        await trio.sleep(1)


# --- a flood ----------------------------------------------------------------------------

CHAT = GenerateJob(
    turns=[Turn("user", "hi")],
    max_tokens=1,
    sampling=Sampling(temperature=None, top_p=None, top_k=None, seed=1),
)


async def run_a_second(pipeline: Pipeline, uid: int, starts: list[int]):
    async with admitted(pipeline, PLAN, begin(uid)):
        starts.append(uid)
        await trio.sleep(1)


async def flood(pipeline: Pipeline, uid: int, starts: list[int]):
    """Ask for vectors, and again as soon as there is an answer, refused or not."""
    while True:
        with suppress(QueueFullError):
            await run_a_second(pipeline, uid, starts)
        await trio.sleep(0.5)


async def test_a_flood_of_embeddings_delays_each_request_of_others_by_one_job(
    autojump_clock, nursery
):
    pipeline = make_pipeline(ScriptedBackend(), max_queued=3)
    starts: list[int] = []
    for _ in range(8):
        nursery.start_soon(flood, pipeline, 1, starts)
    await trio.sleep(5.5)
    for _ in range(5):
        arrived_at = trio.current_time()
        async with admitted(
            pipeline, ResolvedRequest(job=CHAT, needs=(GENERATES,)), begin(2)
        ):
            assert trio.current_time() - arrived_at <= 2
            await trio.sleep(1)
    assert starts[-1] == 1
    nursery.cancel_scope.cancel()


async def test_two_flooding_users_alternate(autojump_clock, nursery):
    pipeline = make_pipeline(ScriptedBackend(), max_queued=3)
    starts: list[int] = []
    for uid in [1] * 8 + [2] * 3:
        nursery.start_soon(flood, pipeline, uid, starts)
    await trio.sleep(14)
    assert starts[-10:] in ([1, 2] * 5, [2, 1] * 5)
    nursery.cancel_scope.cancel()


async def test_bytes_count_on_arrival_and_tokens_once_prepared(autojump_clock, nursery):
    backend = ScriptedBackend(Script(prompt_tokens=60, prepare_s=1))
    gate = Admission(max_active=1, max_queued=9, max_queued_tokens=100)
    pipeline = Pipeline([backend], RequestQueue(gate))
    for _ in range(2):
        nursery.start_soon(hold, pipeline, PLAN, begin())
        await trio.testing.wait_all_tasks_blocked()
    assert (gate.waiting_bytes, gate.waiting_tokens) == (17, 0)
    with pytest.raises(QueueFullError) as caught:
        async with admitted(pipeline, PLAN, begin()):
            pytest.fail("it was let in")
    assert (caught.value.depth, trio.current_time()) == (1, 3)
    assert (gate.waiting, gate.waiting_bytes, gate.waiting_tokens) == (1, 17, 60)
    assert backend.n_held == 2
    nursery.cancel_scope.cancel()


async def test_a_flood_is_prepared_after_requests_that_run_sooner(
    autojump_clock, nursery
):
    backend = ScriptedBackend(Script(prepare_s=1))
    pipeline = make_pipeline(backend)
    for uid in [1] * 6:
        nursery.start_soon(hold, pipeline, PLAN, begin(uid))
        await trio.testing.wait_all_tasks_blocked()
    other = begin(2)
    nursery.start_soon(hold, pipeline, PLAN, other)
    await trio.sleep(2.5)
    assert other.input_tokens == 3
    assert backend.counts.prepared == 2
    nursery.cancel_scope.cancel()


# --- what is not plain --------------------------------------------------------------------


class WritingBackend(ScriptedBackend):
    """Writes what is not plain, as long as it takes; notes for whom."""

    def __init__(self, write_s: float) -> None:
        super().__init__()
        self.write_s = write_s
        self.owners: list[int] = []

    async def render(self, job: GenerateJob) -> RenderedJob:
        self.owners.append(job.owner)
        await trio.sleep(self.write_s)
        return WRITTEN


WRITTEN = RenderedJob(pieces=("written",))
TOOL = ToolSpec(name="f", description="", input_schema="{}")


def asking(owner: int = 1000, **fields) -> ResolvedRequest[GenerateJob]:
    sampling = Sampling(temperature=0, top_p=1, top_k=0, seed=0)
    job = GenerateJob(
        owner=owner,
        turns=[Turn("user", "hi")],
        max_tokens=1,
        sampling=sampling,
        **fields,
    )
    return ResolvedRequest(job=job, needs=(GENERATES,))


async def test_a_request_that_is_not_plain_is_rendered_before_it_is_prepared(
    autojump_clock,
):
    backend = WritingBackend(write_s=2)
    pipeline = make_pipeline(backend)
    async with admitted(pipeline, asking(tools=(TOOL,)), begin()) as (_, prepared):
        assert prepared.job.rendered == WRITTEN
        assert trio.current_time() == 2
    async with admitted(pipeline, asking(), begin()) as (_, prepared):
        assert prepared.job.rendered is None
    assert backend.owners == [1000]


async def test_a_long_rendering_delays_no_plain_request(autojump_clock, nursery):
    backend = WritingBackend(write_s=FOR_EVER)
    pipeline = make_pipeline(backend)
    nursery.start_soon(hold, pipeline, asking(tools=(TOOL,)), begin())
    await trio.testing.wait_all_tasks_blocked()
    plain = begin(2000)
    nursery.start_soon(hold, pipeline, asking(2000), plain)
    await trio.testing.wait_all_tasks_blocked()
    assert plain.input_tokens == 3  # it is prepared
    nursery.cancel_scope.cancel()


async def test_users_alternate_in_rendering(autojump_clock, nursery):
    backend = WritingBackend(write_s=10)
    pipeline = make_pipeline(backend)
    nursery.start_soon(hold, pipeline, asking(1), begin(1))  # has the permit
    await trio.testing.wait_all_tasks_blocked()
    for owner in (2, 2, 2, 2, 3):
        nursery.start_soon(hold, pipeline, asking(owner, tools=(TOOL,)), begin(owner))
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(60)
    assert backend.owners[0] == 2
    assert 3 in backend.owners[1:3]
    nursery.cancel_scope.cancel()


async def test_a_request_goes_to_the_backend_that_it_names():
    backends = [ScriptedBackend(name="a"), ScriptedBackend(name="b")]
    pipeline = make_pipeline(*backends)
    pipeline.names.replace({"b": ("fast",)})
    for model, chosen in ((None, "a"), ("a", "a"), ("b", "b"), ("fast", "b")):
        context = begin()
        plan = ResolvedRequest(job=JOB, needs=(EMBEDS,), model=model)
        async with admitted(pipeline, plan, context) as (backend, _):
            assert backend.name == context.backend == chosen
    plan = ResolvedRequest(job=JOB, needs=(EMBEDS,), model="c")
    with pytest.raises(ModelNotFoundError, match="a, b, fast"):
        async with admitted(pipeline, plan, begin()):
            pass
    assert is_free(pipeline)


async def test_requests_for_a_model_that_is_not_read_yet_wait_in_the_queue(
    autojump_clock,
):
    async def look(_models: ModelsSettings, _before: StoreView) -> StoreView:
        await trio.sleep_forever()
        raise AssertionError

    config = Config(models=ModelsSettings(serve=True))
    pipeline = dataclasses.replace(
        make_pipeline(ScriptedBackend(), max_queued=1),
        store=StoreModels(config, look, ModelNames()),
    )
    pipeline.queue.hold(UNREAD)
    plan = msgspec.structs.replace(PLAN, model="team/x")
    ended: list[type[InferdError]] = []

    async def ask(uid: int) -> None:
        try:
            await hold(pipeline, plan, begin(uid))
        except InferdError as error:
            ended.append(type(error))

    async with trio.open_nursery() as clients:
        clients.start_soon(ask, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert pipeline.queue.count_waiting() == 1
        await ask(1)
        assert ended == [QueueFullError]
        async with admitted(pipeline, PLAN, begin(2)):  # of another backend
            assert pipeline.queue.count_active() == 1
        pipeline.queue.reject_waiting()
    assert ended == [QueueFullError, DrainingError]
    assert is_free(pipeline)
