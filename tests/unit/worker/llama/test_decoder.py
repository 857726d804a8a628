import threading

import pytest

from inferd.ipc import Ended
from inferd.job import GenerateJob, Sampling
from inferd.wire.requests import ChatMessage
from inferd.worker.backend import PromptOverflowError

pytestmark = pytest.mark.model

GREEDY = Sampling(temperature=0, top_p=1, top_k=0, seed=0)


def job(text, *, max_tokens=24, sampling=GREEDY):
    return GenerateJob(
        messages=[ChatMessage("user", text)], max_tokens=max_tokens, sampling=sampling
    )


def run(backend, *, until=lambda: False):
    """Step until nobody is busy; give each ticket's text and how it ended."""
    texts: dict[int, bytes] = {}
    ends: dict[int, Ended] = {}
    while backend.is_busy and not until():
        step = backend.step()
        for ticket, piece in step.pieces:
            texts[ticket] = texts.get(ticket, b"") + piece
        ends |= {end.ticket: end for end in step.ended}
    return texts, ends


def alone(backend, text, **options):
    backend.start(1, backend.prepare(job(text, **options)))
    return run(backend)[0][1]


def test_an_answer_is_as_long_as_asked_and_counted(backend):
    prepared = backend.prepare(job("hello", max_tokens=5))
    backend.start(7, prepared)
    texts, ends = run(backend)
    assert len(texts[7]) == 5  # one character a token in this vocabulary
    assert ends[7].stop_reason == "length"
    assert ends[7].usage.prompt_tokens == prepared.prompt_tokens
    assert ends[7].usage.completion_tokens == 5


def test_the_answer_depends_on_the_prompt(backend):
    assert alone(backend, "hello") != alone(backend, "goodbye, then")


def test_sequences_in_one_batch_answer_as_they_do_alone(backend):
    prompts = {1: "first", 2: "the second one", 3: "and a third, which is longer"}
    expected = {ticket: alone(backend, text) for ticket, text in prompts.items()}
    for ticket, text in prompts.items():
        backend.start(ticket, backend.prepare(job(text)))
    assert run(backend)[0] == expected


def test_one_may_join_while_another_runs(backend):
    expected = {1: alone(backend, "early"), 2: alone(backend, "late")}
    backend.start(1, backend.prepare(job("early")))
    head = b"".join(piece for _ in range(5) for _, piece in backend.step().pieces)
    backend.start(2, backend.prepare(job("late")))
    texts, _ = run(backend)
    assert {1: head + texts[1], 2: texts[2]} == expected


def test_a_dropped_sequence_leaves_no_trace_in_its_slot(backend):
    expected = alone(backend, "clean")
    for ticket in range(10, 20):
        backend.start(ticket, backend.prepare(job("dirt " * ticket)))
        backend.step()
        backend.drop(ticket)
    assert not backend.is_busy
    assert alone(backend, "clean") == expected


def test_no_tokens_are_no_work(backend):
    backend.start(1, backend.prepare(job("hello", max_tokens=0)))
    texts, ends = run(backend)
    assert texts == {}
    assert (ends[1].stop_reason, ends[1].usage.completion_tokens) == ("length", 0)


def test_an_answer_ends_with_the_context(backend):
    prepared = backend.prepare(job("x" * 400, max_tokens=10_000))
    backend.start(1, prepared)
    _, ends = run(backend)
    assert ends[1].stop_reason == "length"
    assert prepared.prompt_tokens + ends[1].usage.completion_tokens == 512


def test_a_prompt_may_fill_the_context_but_for_one_token(backend):
    frame = backend.prepare(job("")).prompt_tokens
    backend.start(1, backend.prepare(job("x" * (511 - frame))))
    assert run(backend)[1][1].usage.completion_tokens == 1
    with pytest.raises(PromptOverflowError) as caught:
        backend.prepare(job("x" * (512 - frame)))
    assert (caught.value.prompt_tokens, caught.value.n_ctx) == (512, 512)


def test_an_interrupted_prefill_costs_the_others_nothing_but_the_step(backend):
    expected = alone(backend, "steady")
    backend.start(1, backend.prepare(job("steady")))
    head = b"".join(piece for _ in range(4) for _, piece in backend.step().pieces)
    backend.start(2, backend.prepare(job("y" * 450)))
    stop = threading.Event()

    def interrupt():
        while not stop.is_set():
            backend.interrupt(2)

    thread = threading.Thread(target=interrupt)
    thread.start()
    interrupted = [backend.step() for _ in range(20)]
    stop.set()
    thread.join()
    assert any(not step.pieces for step in interrupted), "no step was cut short"
    backend.drop(2)
    head += b"".join(piece for step in interrupted for _, piece in step.pieces)
    assert head + run(backend)[0][1] == expected


def test_an_interruption_that_comes_too_late_is_harmless(backend):
    expected = alone(backend, "steady")
    backend.start(1, backend.prepare(job("steady")))
    backend._context.interrupt()
    assert run(backend)[0][1] == expected


def test_an_interruption_meant_for_a_stream_past_its_prompt_is_ignored(backend):
    backend.start(1, backend.prepare(job("steady")))
    backend.step()
    backend.interrupt(1)
    assert backend.step().pieces
    backend.drop(1)


def test_a_long_prompt_comes_in_chunks_while_another_streams(backend):
    backend.start(1, backend.prepare(job("steady", max_tokens=40)))
    backend.step()
    backend.start(2, backend.prepare(job("z" * 450)))
    steps = [backend.step() for _ in range(9)]
    writers = [[ticket for ticket, _ in step.pieces] for step in steps]
    assert writers[:7] == [[1]] * 7  # 450 tokens at 64 a step
    assert [1, 2] in writers[7:]
    run(backend)
