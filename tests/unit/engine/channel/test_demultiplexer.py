import pytest
import trio

from inferd.backend.interface import CacheReuse
from inferd.engine.channel.demultiplexer import (
    Demultiplexer,
    PrefillProgress,
    QueuePosition,
    WorkerDiedError,
)
from inferd.engine.dispatcher import Dispatcher
from inferd.engine.supervisor.watchdog import Watchdog
from inferd.ipc.worker import (
    Embedded,
    Failed,
    FromWorker,
    Heartbeat,
    PromptReady,
    Scored,
    Segment,
    Started,
    Step,
    Transcribed,
    TranscriptEnded,
)
from inferd.wire.responses import DraftCounts, Logprob, Usage
from tests.fakes.worker import ended

WORD = "a"


def dispatch(demux: Demultiplexer, message: FromWorker) -> None:
    Dispatcher(demux, Watchdog(0), {}, lambda _: None).dispatch(message, 0)


@pytest.fixture
def demux():
    demux = Demultiplexer()
    demux.open(1)
    return demux


async def test_each_job_gets_its_results_and_others_are_ignored(demux):
    step = Step(pieces=[(1, b"a"), (2, b"b")], prefilled=[(1, 3)], ended=[ended(1, 1)])
    dispatch(demux, step)
    dispatch(demux, Heartbeat())
    assert await demux.open(1).get_all() == [PrefillProgress(3), b"a", ended(1, 1)]
    assert 2 not in demux


async def test_a_step_is_split_in_order_with_log_probabilities_before_pieces(
    demux,
):
    counts, reuse = (
        DraftCounts(drafted_tokens=3, accepted_tokens=1),
        CacheReuse(cached_tokens=2),
    )
    numbers = [
        Logprob(token=WORD, id=n, bytes=[97], logprob=0.0, top_logprobs=[])
        for n in range(2)
    ]
    demux.open(2)
    step = Step(
        started=[Started(ticket=1, reuse=reuse)],
        prefilled=[(1, 3)],
        drafted=[(1, counts)],
        logprobs=[(1, numbers[0]), (1, numbers[1])],
        pieces=[(1, b"a"), (2, b"b"), (1, b"a"), (2, b"b")],
    )
    dispatch(demux, step)
    assert await demux.open(1).get_all() == [
        *(reuse, PrefillProgress(3), counts),
        *(numbers[0], b"a", numbers[1], b"a"),
    ]
    assert await demux.open(2).get_all() == [b"b", b"b"]


def test_an_end_of_a_job_that_was_dropped_is_not_that_of_a_later_one(demux):
    dispatch(demux, Step(ended=[ended(2, 1)]))
    demux.open(2)
    assert not demux.close(2)


@pytest.mark.parametrize(
    ("message", "is_an_end"),
    [
        (Step(ended=[ended(1, 0)]), True),
        (Scored(ticket=1, scores=[]), True),
        (Embedded(ticket=1, embeddings=b"[]", dimensions=1), True),
        (Embedded(ticket=1, embeddings=b"[]", dimensions=1, is_last=False), False),
        (Failed(ticket=1, reason="r"), False),
        (PromptReady(ticket=1, prompt_tokens=1), False),
    ],
)
async def test_a_finished_job_counts_as_served_and_needs_no_drop(
    demux, message, is_an_end, autojump_clock
):
    dispatch(demux, message)
    result = message.ended[0] if isinstance(message, Step) else message
    with trio.fail_after(1):
        assert await demux.open(1).get_all() == [result]
    assert demux.has_served is is_an_end
    assert demux.close(1) is is_an_end
    assert 1 not in demux


async def test_a_queue_opened_after_the_end_fails(demux):
    demux.fail_all("gone")
    assert 1 not in demux
    with pytest.raises(WorkerDiedError, match="gone"):
        await demux.open(2).get_all()


def transcribed(text=b"", partial=b"", n_bytes_read=0):
    def segment(said):
        return Segment(text=said, start_ms=0, end_ms=1)

    return Transcribed(
        ticket=1,
        segments=[segment(text)] if text else [],
        partial=segment(partial) if partial else None,
        n_bytes_read=n_bytes_read,
    )


async def test_only_the_latest_provisional_text_stays_queued(demux):
    for message in (
        transcribed(partial=b"he", n_bytes_read=4),
        transcribed(partial=b"hello"),
        transcribed(b"Hello."),
        transcribed(b" I"),
        transcribed(partial=b"am"),
        transcribed(partial=b"was", n_bytes_read=8),
    ):
        dispatch(demux, message)
    assert await demux.open(1).get_all() == [
        transcribed(b"Hello.", n_bytes_read=4),
        transcribed(b" I"),
        transcribed(partial=b"was", n_bytes_read=8),
    ]
    demux.close(1)
    dispatch(demux, transcribed(b"lost"))


async def test_a_finished_transcript_counts_as_served(demux):
    usage = Usage(prompt_tokens=1, completion_tokens=2)
    end = TranscriptEnded(
        ticket=1,
        stop_reason="end",
        usage=usage,
        language="en",
        audio_ms=1,
        computing_ms=1,
    )
    dispatch(demux, end)
    assert demux.has_served
    assert await demux.open(1).get_all() == [end]


async def test_only_the_latest_queue_position_stays_queued(demux):
    demux.put_queue_position(1, 3)
    demux.put_queue_position(1, 2)
    demux.put_queue_position(9, 1)
    assert await demux.open(1).get_all() == [QueuePosition(2)]
    demux.put_queue_position(1, 1)
    dispatch(demux, Step(pieces=[(1, b"a")]))
    assert await demux.open(1).get_all() == [QueuePosition(1), b"a"]
