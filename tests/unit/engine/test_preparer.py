import signal

import pytest
import trio

from inferd.engine.answers import WorkerDiedError
from inferd.engine.preparation import PreparationGoneError
from inferd.engine.preparer import Preparer
from inferd.errors import BackendUnavailableError, InternalError, InvalidRequestError
from inferd.job import GenerateJob, Sampling, Structure, Tool, Turn, Written
from inferd.limits import PREPARER_STARTS_MAX, WRITES_MAX, WRITING_TIMEOUT_S
from inferd.preparing import Broken, Ended, Learn, Unwritable, Write, Wrote

WRITTEN = Written(pieces=("hi",))
ADA, BEN = 1000, 1001
DIGEST = b"x" * 32


def job(*, owner=ADA, structure="a+"):
    held = Structure(kind="regex", source=structure) if structure else None
    return GenerateJob(
        owner=owner,
        turns=[Turn("user", "hi")],
        tools=(Tool(name="f", description="", input_schema="{}"),),
        structure=held,
        max_tokens=3,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )


class FakeProcess:
    """Answers as it is told; what it is told to raise, it raises."""

    def __init__(self, *answers, takes_s=0.0, starts_s=0.0, ends_early=False):
        self.answers = list(answers)
        self.takes_s = takes_s
        self.starts_s = starts_s
        self.ends_early = ends_early
        self.is_out_of_step = False
        self.where = "grammar"
        self.learnt: Learn | None = None
        self.asked: list[Write] = []
        self.is_closed = False
        self.settles_s = 0.0
        self.n_settled = 0

    async def learn(self, message):
        await trio.sleep(self.starts_s)
        if self.ends_early:
            raise PreparationGoneError
        self.learnt = message

    async def settle(self):
        self.n_settled += 1
        if self.is_out_of_step:
            raise PreparationGoneError
        await trio.sleep(self.settles_s)

    async def ask(self, asked):
        self.asked.append(asked)
        await trio.sleep(self.takes_s)
        answer = self.answers.pop(0) if self.answers else Wrote
        if answer is PreparationGoneError:
            raise PreparationGoneError
        if answer is Wrote:
            return Wrote(ticket=asked.ticket, written=WRITTEN, tried=(DIGEST,))
        return answer

    async def aclose(self):
        self.is_closed = True
        await trio.lowlevel.checkpoint()


async def words():
    await trio.lowlevel.checkpoint()
    return b"words"


def preparer_of(*processes):
    left = list(processes)
    return Preparer(b"facts", words, start_timeout_s=30.0, start=lambda: left.pop(0))


async def test_a_process_is_started_for_the_first_job_and_kept(autojump_clock):
    process = FakeProcess()
    preparer = preparer_of(process)
    assert process.learnt is None
    for _ in range(3):
        assert await preparer.write(job()) == WRITTEN
    assert process.learnt == Learn(facts=b"facts", words=b"words")
    assert len({each.ticket for each in process.asked}) == 3
    await preparer.aclose()
    assert process.is_closed


async def test_the_vocabulary_is_told_once_it_is_needed(autojump_clock):
    first, second = FakeProcess(), FakeProcess()
    preparer = preparer_of(first, second)
    await preparer.write(job(structure=""))
    assert first.learnt == Learn(facts=b"facts")
    await preparer.write(job())
    assert first.is_closed
    assert second.learnt == Learn(facts=b"facts", words=b"words")
    await preparer.write(job(structure=""))
    assert len(second.asked) == 2


async def test_what_one_user_had_tried_is_known_of_that_user_alone(autojump_clock):
    process = FakeProcess()
    preparer = preparer_of(process)
    for owner in (ADA, BEN, ADA):
        await preparer.write(job(owner=owner))
    assert [each.known for each in process.asked] == [(), (), (DIGEST,)]


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (Unwritable(ticket=1, reason="no"), InvalidRequestError, "no"),
        (Broken(ticket=1, reason="oh"), InternalError, "oh"),
        (Ended(code=-signal.SIGPROF), InvalidRequestError, "grammar: .*too long"),
        (Ended(code=-signal.SIGXCPU), InvalidRequestError, "grammar: .*too long"),
        (Ended(code=-signal.SIGKILL), InvalidRequestError, "grammar: .*memory"),
        (Ended(code=-signal.SIGSEGV), InvalidRequestError, "grammar: .*crashes"),
    ],
)
async def test_what_comes_of_a_job_is_told(autojump_clock, answer, error, said):
    process = FakeProcess(answer)
    preparer = preparer_of(process)
    with pytest.raises(error, match=said):
        await preparer.write(job())
    assert await preparer.write(job()) == WRITTEN
    assert not process.is_closed


async def test_a_job_whose_process_is_killed_is_written_by_another(autojump_clock):
    first, second = FakeProcess(PreparationGoneError), FakeProcess()
    assert await preparer_of(first, second).write(job()) == WRITTEN
    assert first.is_closed


async def test_one_that_ends_each_process_is_refused(autojump_clock):
    doomed = [FakeProcess(PreparationGoneError) for _ in range(WRITES_MAX)]
    preparer = preparer_of(*doomed, FakeProcess())
    with pytest.raises(InvalidRequestError, match="was ended"):
        await preparer.write(job())
    assert await preparer.write(job()) == WRITTEN


async def test_one_that_takes_too_long_ends_its_process(autojump_clock):
    slow = FakeProcess(takes_s=10**6)
    preparer = preparer_of(slow, FakeProcess())
    with pytest.raises(
        InvalidRequestError, match="grammar: compiling it takes too long"
    ):
        await preparer.write(job())
    assert trio.current_time() == WRITING_TIMEOUT_S
    assert slow.is_closed
    assert await preparer.write(job()) == WRITTEN


async def test_all_its_tries_have_one_time(autojump_clock):
    first = FakeProcess(PreparationGoneError, takes_s=WRITING_TIMEOUT_S - 1)
    second = FakeProcess(takes_s=10**6)
    with pytest.raises(InvalidRequestError, match="takes too long"):
        await preparer_of(first, second).write(job())
    assert trio.current_time() == WRITING_TIMEOUT_S


async def test_a_job_that_nobody_waits_for_has_no_more_time_than_its_own(
    autojump_clock,
):
    first, second = FakeProcess(takes_s=10**6), FakeProcess()
    preparer = preparer_of(first, second)
    with trio.move_on_after(2):
        await preparer.write(job())
    first.settles_s = 10**6
    assert await preparer.write(job()) == WRITTEN
    assert trio.current_time() == WRITING_TIMEOUT_S
    assert first.is_closed


async def test_an_answer_that_came_long_ago_is_still_read(autojump_clock):
    process = FakeProcess()
    preparer = preparer_of(process)
    await preparer.write(job())
    await trio.sleep(100)
    process.settles_s = 0.5
    assert await preparer.write(job()) == WRITTEN
    assert not process.is_closed


async def test_what_another_job_has_left_costs_none_of_ones_own_tries(autojump_clock):
    first = FakeProcess()
    doomed = FakeProcess(PreparationGoneError)
    preparer = preparer_of(first, doomed, FakeProcess())
    await preparer.write(job())
    first.is_out_of_step = True
    assert await preparer.write(job()) == WRITTEN


async def test_one_that_ends_as_it_starts_is_no_fault_of_the_request(autojump_clock):
    early = [FakeProcess(ends_early=True) for _ in range(PREPARER_STARTS_MAX)]
    preparer = preparer_of(*early, early[0], FakeProcess())
    with pytest.raises(BackendUnavailableError, match="as it is started"):
        await preparer.write(job())
    assert all(each.is_closed for each in early)
    assert await preparer.write(job()) == WRITTEN


async def test_one_job_is_at_a_process_at_a_time(autojump_clock):
    process = FakeProcess(takes_s=1.0)
    preparer = preparer_of(process)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(preparer.write, job())
    assert trio.current_time() == 3.0


async def test_a_job_that_nobody_waits_for_is_settled_first(autojump_clock):
    process = FakeProcess(takes_s=2.0)
    preparer = preparer_of(process)
    with trio.move_on_after(1):
        await preparer.write(job())
    assert await preparer.write(job()) == WRITTEN
    assert process.n_settled == 1


async def test_one_that_does_not_start_in_time_is_ended(autojump_clock):
    slow = FakeProcess(starts_s=10**6)
    with pytest.raises(BackendUnavailableError, match="takes too long to start"):
        await preparer_of(slow).write(job())
    assert slow.is_closed


async def test_where_no_process_is_to_be_had_that_is_told(autojump_clock):
    def refuse():
        raise OSError(11, "no more")

    preparer = Preparer(b"", words, start_timeout_s=1, start=refuse)
    with pytest.raises(BackendUnavailableError, match="cannot be started: no more"):
        await preparer.write(job())


async def test_once_it_is_closed_nothing_is_started(autojump_clock):
    preparer = preparer_of()
    await preparer.aclose()
    with pytest.raises(WorkerDiedError):
        await preparer.write(job())
