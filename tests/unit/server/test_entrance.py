from contextlib import suppress

import pytest
import trio
import trio.testing

from inferd.admission.gate import Admission
from inferd.capabilities import BackendCapabilities
from inferd.errors import (
    BackendUnavailableError,
    DrainingError,
    InvalidRequestError,
    QueueFullError,
)
from inferd.job import EmbedJob, GenerateJob, Sampling, Tool, Turn, Written
from inferd.resolve.plan import Plan
from inferd.routing import EMBEDS, GENERATES
from inferd.server.activity import Activity
from inferd.server.entrance import Entrance
from inferd.server.peer import Peer
from inferd.server.turns import Turns
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend

PEER = Peer(pid=17, uid=1000, gid=100)
JOB = EmbedJob(texts=["a"], dimensions=None, task=None)
PLAN = Plan(job=JOB, needs=(EMBEDS,))


def make_entrance(*backends: ScriptedBackend, max_queued: int = 10) -> Entrance:
    return Entrance(backends, Turns(Admission(max_active=1, max_queued=max_queued)))


def begin(uid: int = 1000) -> Activity:
    peer = Peer(pid=17, uid=uid, gid=100)
    return Activity(peer, "infer.embed.sock", "r", trio.current_time(), n_bytes=17)


def is_free(entrance: Entrance) -> bool:
    turns = entrance.turns
    return turns.count_active() == turns.count_waiting() == 0


async def hold(entrance: Entrance, plan: Plan[EmbedJob], activity: Activity):
    async with entrance.enter(plan, activity):
        await trio.sleep_forever()


async def test_inside_there_is_a_permit_a_backend_and_a_job_that_is_read(
    autojump_clock,
):
    backend = ScriptedBackend(Script(prepare_s=2))
    entrance, activity = make_entrance(backend), begin()
    async with entrance.enter(PLAN, activity) as (chosen, prepared):
        assert (chosen, prepared.job) == (backend, JOB)
        assert entrance.turns.count_active() == 1
        assert (activity.backend, activity.input_tokens) == ("scripted", 3)
        assert activity.started_at == 2
        assert activity.turn is not None
    assert is_free(entrance)
    assert backend.is_idle


async def test_texts_are_read_while_it_is_somebody_elses_turn(autojump_clock, nursery):
    backend = ScriptedBackend()
    entrance = make_entrance(backend)
    first, second = begin(), begin()
    for activity in (first, second):
        nursery.start_soon(hold, entrance, PLAN, activity)
        await trio.testing.wait_all_tasks_blocked()
    assert backend.counts.prepared == 2
    assert (first.started_at, second.started_at) == (0, None)
    assert (second.backend, second.input_tokens) == ("scripted", 3)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("priorities", [(0, 5), (5, 0)])
async def test_a_users_priorities_order_that_users_own(
    priorities, autojump_clock, nursery
):
    entrance = make_entrance(ScriptedBackend())
    nursery.start_soon(hold, entrance, PLAN, begin())
    waiting: list[Activity] = []
    for priority in priorities:
        waiting.append(begin())
        plan = Plan(job=JOB, needs=(EMBEDS,), priority=priority)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(hold, entrance, plan, waiting[-1])
    await trio.testing.wait_all_tasks_blocked()
    expected = waiting if priorities[0] > priorities[1] else waiting[::-1]
    assert entrance.turns.order() == [each.turn for each in expected]
    nursery.cancel_scope.cancel()


async def test_another_users_priority_is_no_matter(autojump_clock, nursery):
    entrance = make_entrance(ScriptedBackend())
    activities = [begin(3), begin(1), begin(2)]
    for activity, priority in zip(activities, (0, 0, 9), strict=True):
        plan = Plan(job=JOB, needs=(EMBEDS,), priority=priority)
        nursery.start_soon(hold, entrance, plan, activity)
        await trio.testing.wait_all_tasks_blocked()
    assert entrance.turns.order() == [each.turn for each in activities[1:]]
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
async def test_what_cannot_be_served_gives_its_place_back(backend, error):
    entrance = make_entrance(backend)
    with pytest.raises(error):
        async with entrance.enter(PLAN, begin()):
            pytest.fail("it was let in")
    assert is_free(entrance)
    assert backend.is_idle


async def test_where_there_is_no_place_no_backend_is_asked(autojump_clock, nursery):
    backend = ScriptedBackend()
    entrance = make_entrance(backend, max_queued=0)
    nursery.start_soon(hold, entrance, PLAN, begin())
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(QueueFullError):
        async with entrance.enter(PLAN, begin()):
            pytest.fail("it was let in")
    assert backend.counts.asked == 1
    nursery.cancel_scope.cancel()


async def test_one_who_is_turned_away_leaves_nothing(autojump_clock, nursery):
    backend = ScriptedBackend()
    entrance = make_entrance(backend)
    nursery.start_soon(hold, entrance, PLAN, begin())
    await trio.testing.wait_all_tasks_blocked()

    async def turn_away():
        await trio.sleep(1)
        entrance.turns.turn_away()

    nursery.start_soon(turn_away)
    with pytest.raises(DrainingError):
        async with entrance.enter(PLAN, begin()):
            pytest.fail("it was let in")
    assert backend.n_held == 1
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "script", [Script(prepare_s=FOR_EVER), Script(token_delay_s=FOR_EVER)]
)
async def test_one_who_leaves_leaves_nothing(script, autojump_clock):
    backend = ScriptedBackend(script)
    entrance = make_entrance(backend)
    with trio.move_on_after(1):
        await hold(entrance, PLAN, begin())
    assert is_free(entrance)
    assert backend.is_idle


async def test_a_failure_inside_gives_the_permit_back():
    backend = ScriptedBackend()
    entrance = make_entrance(backend)
    with pytest.raises(ZeroDivisionError):
        async with entrance.enter(PLAN, begin()):
            raise ZeroDivisionError
    assert is_free(entrance)
    assert backend.is_idle


async def test_what_was_ended_before_takes_no_place(autojump_clock):
    backend = ScriptedBackend()
    entrance, activity = make_entrance(backend, max_queued=0), begin()
    activity.cancel()
    with activity.scope:
        async with entrance.enter(PLAN, activity):
            pytest.fail("it was let in")
    assert activity.scope.cancelled_caught
    assert backend.counts.asked == 0
    assert activity.turn is None


async def test_places_are_told_until_it_is_the_turn(autojump_clock, nursery):
    entrance = make_entrance(ScriptedBackend())
    first = begin()
    nursery.start_soon(hold_a_while, entrance, first)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(hold_a_while, entrance, begin())
    await trio.testing.wait_all_tasks_blocked()
    told: list[tuple[float, int]] = []

    async def tell(position: int):
        told.append((trio.current_time(), position))

    async with entrance.enter(PLAN, begin(), tell=tell):
        assert told == [(0, 2), (1, 1)]
        assert trio.current_time() == 2


async def test_one_who_does_not_read_its_place_runs_in_its_turn(
    autojump_clock, nursery
):
    entrance = make_entrance(ScriptedBackend())
    nursery.start_soon(hold_a_while, entrance, begin())
    await trio.testing.wait_all_tasks_blocked()

    async def stall(_: int):
        await trio.sleep(1000)

    async with entrance.enter(PLAN, begin(), tell=stall):
        assert trio.current_time() == 1


async def hold_a_while(entrance: Entrance, activity: Activity):
    async with entrance.enter(PLAN, activity):
        await trio.sleep(1)


# --- a flood ----------------------------------------------------------------------------

CHAT = GenerateJob(
    turns=[Turn("user", "hi")],
    max_tokens=1,
    sampling=Sampling(temperature=None, top_p=None, top_k=None, seed=1),
)


async def run_a_second(entrance: Entrance, uid: int, starts: list[int]):
    async with entrance.enter(PLAN, begin(uid)):
        starts.append(uid)
        await trio.sleep(1)


async def flood(entrance: Entrance, uid: int, starts: list[int]):
    """Ask for vectors, and again as soon as there is an answer, refused or not."""
    while True:
        with suppress(QueueFullError):
            await run_a_second(entrance, uid, starts)
        await trio.sleep(0.5)


async def test_a_flood_of_embeddings_delays_others_by_a_turn_each(
    autojump_clock, nursery
):
    entrance = make_entrance(ScriptedBackend(), max_queued=3)
    starts: list[int] = []
    for _ in range(8):
        nursery.start_soon(flood, entrance, 1, starts)
    await trio.sleep(5.5)
    for _ in range(5):
        arrived_at = trio.current_time()
        async with entrance.enter(Plan(job=CHAT, needs=(GENERATES,)), begin(2)):
            assert trio.current_time() - arrived_at <= 2
            await trio.sleep(1)
    assert starts[-1] == 1
    nursery.cancel_scope.cancel()


async def test_two_floods_have_every_other_turn(autojump_clock, nursery):
    entrance = make_entrance(ScriptedBackend(), max_queued=3)
    starts: list[int] = []
    for uid in [1] * 8 + [2] * 3:
        nursery.start_soon(flood, entrance, uid, starts)
    await trio.sleep(14)
    assert starts[-10:] in ([1, 2] * 5, [2, 1] * 5)
    nursery.cancel_scope.cancel()


async def test_bytes_count_on_arrival_and_tokens_when_the_texts_are_read(
    autojump_clock, nursery
):
    backend = ScriptedBackend(Script(prompt_tokens=60, prepare_s=1))
    gate = Admission(max_active=1, max_queued=9, max_queued_tokens=100)
    entrance = Entrance([backend], Turns(gate))
    for _ in range(2):
        nursery.start_soon(hold, entrance, PLAN, begin())
        await trio.testing.wait_all_tasks_blocked()
    assert (gate.waiting_bytes, gate.waiting_tokens) == (17, 0)
    with pytest.raises(QueueFullError) as caught:
        async with entrance.enter(PLAN, begin()):
            pytest.fail("it was let in")
    assert (caught.value.depth, trio.current_time()) == (1, 3)
    assert (gate.waiting, gate.waiting_bytes, gate.waiting_tokens) == (1, 17, 60)
    assert backend.n_held == 2
    nursery.cancel_scope.cancel()


async def test_texts_of_a_flood_are_read_after_those_whose_turn_is_sooner(
    autojump_clock, nursery
):
    backend = ScriptedBackend(Script(prepare_s=1))
    entrance = make_entrance(backend)
    for uid in [1] * 6:
        nursery.start_soon(hold, entrance, PLAN, begin(uid))
        await trio.testing.wait_all_tasks_blocked()
    other = begin(2)
    nursery.start_soon(hold, entrance, PLAN, other)
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

    async def write(self, job: GenerateJob) -> Written:
        self.owners.append(job.owner)
        await trio.sleep(self.write_s)
        return WRITTEN


WRITTEN = Written(pieces=("written",))
TOOL = Tool(name="f", description="", input_schema="{}")


def asking(owner: int = 1000, **fields) -> Plan[GenerateJob]:
    sampling = Sampling(temperature=0, top_p=1, top_k=0, seed=0)
    job = GenerateJob(
        owner=owner,
        turns=[Turn("user", "hi")],
        max_tokens=1,
        sampling=sampling,
        **fields,
    )
    return Plan(job=job, needs=(GENERATES,))


async def test_what_is_not_plain_is_written_before_it_is_prepared(autojump_clock):
    backend = WritingBackend(write_s=2)
    entrance = make_entrance(backend)
    async with entrance.enter(asking(tools=(TOOL,)), begin()) as (_, prepared):
        assert prepared.job.written == WRITTEN
        assert trio.current_time() == 2
    async with entrance.enter(asking(), begin()) as (_, prepared):
        assert prepared.job.written is None
    assert backend.owners == [1000]


async def test_who_writes_for_long_keeps_no_plain_request_waiting(
    autojump_clock, nursery
):
    backend = WritingBackend(write_s=FOR_EVER)
    entrance = make_entrance(backend)
    nursery.start_soon(hold, entrance, asking(tools=(TOOL,)), begin())
    await trio.testing.wait_all_tasks_blocked()
    plain = begin(2000)
    nursery.start_soon(hold, entrance, asking(2000), plain)
    await trio.testing.wait_all_tasks_blocked()
    assert plain.input_tokens == 3  # it is prepared
    nursery.cancel_scope.cancel()


async def test_users_take_turns_in_having_written(autojump_clock, nursery):
    backend = WritingBackend(write_s=10)
    entrance = make_entrance(backend)
    nursery.start_soon(hold, entrance, asking(1), begin(1))  # has the permit
    await trio.testing.wait_all_tasks_blocked()
    for owner in (2, 2, 2, 2, 3):
        nursery.start_soon(hold, entrance, asking(owner, tools=(TOOL,)), begin(owner))
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(60)
    assert backend.owners[0] == 2
    assert 3 in backend.owners[1:3]
    nursery.cancel_scope.cancel()
