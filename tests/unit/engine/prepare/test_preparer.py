import signal

import pytest
import trio

from inferd.backend.job import (
    GenerateJob,
    RenderedJob,
    Sampling,
    Structure,
    ToolSpec,
    Turn,
)
from inferd.engine.channel.demultiplexer import WorkerDiedError
from inferd.engine.prepare.preparer import Preparer
from inferd.engine.prepare.process import PreparerGoneError
from inferd.errors import BackendUnavailableError, InternalError, InvalidRequestError
from inferd.ipc.preparer import (
    Configure,
    ForkExited,
    Render,
    Rendered,
    RenderFailed,
    RenderRefused,
)
from inferd.limits.engine import (
    PREPARER_STARTS_MAX,
    RENDER_ATTEMPTS_MAX,
    RENDER_TIMEOUT_S,
)
from tests.cases import each_case

WRITTEN = RenderedJob(pieces=("hi",))
ADA, BEN = 1000, 1001
DIGEST = b"x" * 32


def job(*, owner=ADA, structure="a+"):
    held = Structure(kind="regex", source=structure) if structure else None
    return GenerateJob(
        owner=owner,
        turns=[Turn("user", "hi")],
        tools=(ToolSpec(name="f", description="", input_schema="{}"),),
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
        self.grammar_field = "grammar"
        self.learnt: Configure | None = None
        self.asked: list[Render] = []
        self.is_closed = False
        self.settles_s = 0.0
        self.n_settled = 0

    async def configure(self, message):
        await trio.sleep(self.starts_s)
        if self.ends_early:
            raise PreparerGoneError
        self.learnt = message

    async def wait_idle(self):
        self.n_settled += 1
        if self.is_out_of_step:
            raise PreparerGoneError
        await trio.sleep(self.settles_s)

    async def render(self, asked):
        self.asked.append(asked)
        await trio.sleep(self.takes_s)
        answer = self.answers.pop(0) if self.answers else Rendered
        if answer is PreparerGoneError:
            raise PreparerGoneError
        if answer is Rendered:
            return Rendered(
                ticket=asked.ticket, rendered=WRITTEN, compiled_grammars=(DIGEST,)
            )
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
        assert await preparer.render(job()) == WRITTEN
    assert process.learnt == Configure(prompt_format=b"facts", token_table=b"words")
    assert len({each.ticket for each in process.asked}) == 3
    await preparer.aclose()
    assert process.is_closed


async def test_the_token_table_is_sent_once_it_is_needed(autojump_clock):
    first, second = FakeProcess(), FakeProcess()
    preparer = preparer_of(first, second)
    await preparer.render(job(structure=""))
    assert first.learnt == Configure(prompt_format=b"facts")
    await preparer.render(job())
    assert first.is_closed
    assert second.learnt == Configure(prompt_format=b"facts", token_table=b"words")
    await preparer.render(job(structure=""))
    assert len(second.asked) == 2


async def test_compiled_grammars_are_known_for_their_user_alone(autojump_clock):
    process = FakeProcess()
    preparer = preparer_of(process)
    for owner in (ADA, BEN, ADA):
        await preparer.render(job(owner=owner))
    assert [each.known_grammars for each in process.asked] == [(), (), (DIGEST,)]


@each_case(
    ("answer", "error", "said"),
    [
        (RenderRefused(ticket=1, reason="no"), InvalidRequestError, "no"),
        (RenderFailed(ticket=1, reason="oh"), InternalError, "oh"),
        (ForkExited(code=-signal.SIGPROF), InvalidRequestError, "grammar: .*too long"),
        (ForkExited(code=-signal.SIGXCPU), InvalidRequestError, "grammar: .*too long"),
        (ForkExited(code=-signal.SIGKILL), InvalidRequestError, "grammar: .*memory"),
        (ForkExited(code=-signal.SIGSEGV), InvalidRequestError, "grammar: .*crashes"),
    ],
)
async def test_the_outcome_of_a_job_is_returned_or_raised(
    autojump_clock, answer, error, said
):
    process = FakeProcess(answer)
    preparer = preparer_of(process)
    with pytest.raises(error, match=said):
        await preparer.render(job())
    assert await preparer.render(job()) == WRITTEN
    assert not process.is_closed


async def test_a_job_whose_process_is_killed_is_written_by_another(autojump_clock):
    first, second = FakeProcess(PreparerGoneError), FakeProcess()
    assert await preparer_of(first, second).render(job()) == WRITTEN
    assert first.is_closed


async def test_one_that_ends_each_process_is_refused(autojump_clock):
    doomed = [FakeProcess(PreparerGoneError) for _ in range(RENDER_ATTEMPTS_MAX)]
    preparer = preparer_of(*doomed, FakeProcess())
    with pytest.raises(InvalidRequestError, match="was ended"):
        await preparer.render(job())
    assert await preparer.render(job()) == WRITTEN


async def test_one_that_takes_too_long_ends_its_process(autojump_clock):
    slow = FakeProcess(takes_s=10**6)
    preparer = preparer_of(slow, FakeProcess())
    with pytest.raises(
        InvalidRequestError, match="grammar: compiling it takes too long"
    ):
        await preparer.render(job())
    assert trio.current_time() == RENDER_TIMEOUT_S
    assert slow.is_closed
    assert await preparer.render(job()) == WRITTEN


async def test_all_attempts_share_one_deadline(autojump_clock):
    first = FakeProcess(PreparerGoneError, takes_s=RENDER_TIMEOUT_S - 1)
    second = FakeProcess(takes_s=10**6)
    with pytest.raises(InvalidRequestError, match="takes too long"):
        await preparer_of(first, second).render(job())
    assert trio.current_time() == RENDER_TIMEOUT_S


async def test_a_job_that_nobody_waits_for_has_no_more_time_than_its_own(
    autojump_clock,
):
    first, second = FakeProcess(takes_s=10**6), FakeProcess()
    preparer = preparer_of(first, second)
    with trio.move_on_after(2):
        await preparer.render(job())
    first.settles_s = 10**6
    assert await preparer.render(job()) == WRITTEN
    assert trio.current_time() == RENDER_TIMEOUT_S
    assert first.is_closed


async def test_an_answer_that_came_long_ago_is_still_read(autojump_clock):
    process = FakeProcess()
    preparer = preparer_of(process)
    await preparer.render(job())
    await trio.sleep(100)
    process.settles_s = 0.5
    assert await preparer.render(job()) == WRITTEN
    assert not process.is_closed


async def test_a_process_left_by_another_job_costs_no_attempt(autojump_clock):
    first = FakeProcess()
    doomed = FakeProcess(PreparerGoneError)
    preparer = preparer_of(first, doomed, FakeProcess())
    await preparer.render(job())
    first.is_out_of_step = True
    assert await preparer.render(job()) == WRITTEN


async def test_a_process_that_exits_at_its_start_is_no_fault_of_the_request(
    autojump_clock,
):
    early = [FakeProcess(ends_early=True) for _ in range(PREPARER_STARTS_MAX)]
    preparer = preparer_of(*early, early[0], FakeProcess())
    with pytest.raises(BackendUnavailableError, match="exits at its start"):
        await preparer.render(job())
    assert all(each.is_closed for each in early)
    assert await preparer.render(job()) == WRITTEN


async def test_one_job_is_at_a_process_at_a_time(autojump_clock):
    process = FakeProcess(takes_s=1.0)
    preparer = preparer_of(process)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(preparer.render, job())
    assert trio.current_time() == 3.0


async def test_a_job_that_nobody_waits_for_is_settled_first(autojump_clock):
    process = FakeProcess(takes_s=2.0)
    preparer = preparer_of(process)
    with trio.move_on_after(1):
        await preparer.render(job())
    assert await preparer.render(job()) == WRITTEN
    assert process.n_settled == 1


async def test_one_that_does_not_start_in_time_is_ended(autojump_clock):
    slow = FakeProcess(starts_s=10**6)
    with pytest.raises(BackendUnavailableError, match="takes too long to start"):
        await preparer_of(slow).render(job())
    assert slow.is_closed


async def test_a_process_that_cannot_be_started_is_reported(autojump_clock):
    def refuse():
        raise OSError(11, "no more")

    preparer = Preparer(b"", words, start_timeout_s=1, start=refuse)
    with pytest.raises(BackendUnavailableError, match="cannot be started: no more"):
        await preparer.render(job())


async def test_once_it_is_closed_nothing_is_started(autojump_clock):
    preparer = preparer_of()
    await preparer.aclose()
    with pytest.raises(WorkerDiedError):
        await preparer.render(job())
