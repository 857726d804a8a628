"""Hundreds of answers that end at any moment, and what is left of them in the cells."""

import random

import pytest

from inferd.ipc.worker import Step
from inferd.worker.llama.backend import LlamaBackend
from inferd.worker.llama.generate.decoder import BatchDecoder
from inferd.worker.llama.generator import Generator
from inferd.worker.llama.library.binding import llama
from tests.model.tiny import write_tiny_model
from tests.unit.worker.llama.running import N_SLOTS, job, load

pytestmark = [pytest.mark.model, pytest.mark.slow]

N_ANSWERS = 400
TEXTS = ("a lighthouse keeper " * 10, "a lighthouse keeper " * 8 + "and", "ship " * 40)


@pytest.fixture(params=["plain", "window", "lookup", "draft"])
def backend(request, tmp_path) -> LlamaBackend:
    window = 64 if request.param == "window" else 0
    path = write_tiny_model(tmp_path / "tiny.gguf", window=window)
    settings = {
        "plain": {},
        "window": {"chat_template": "chatml"},
        "lookup": {"speculation": "lookup"},
        "draft": {"speculation": "draft", "draft_model": str(path)},
    }
    return load(path, prompt_cache_mb=1, **settings[request.param])[0]


def play(backend: LlamaBackend, chance: random.Random) -> None:
    """Start, step and drop by chance until all answers have been started and are over."""
    running: set[int] = set()
    n_started = 0
    while running or n_started < N_ANSWERS:
        if n_started < N_ANSWERS and len(running) < N_SLOTS and chance.random() < 0.7:
            asked = job(
                chance.choice(TEXTS),
                max_tokens=chance.randrange(1, 12),
                owner=chance.randrange(3),
                cache=chance.choice(["auto", "auto", "off", "discard"]),
            )
            backend.start(n_started, backend.prepare(asked))
            running.add(n_started)
            n_started += 1
        if running and chance.random() < 0.3:
            backend.drop(ticket := chance.choice(sorted(running)))
            running.remove(ticket)
        for outcome in backend.step() if running else ():
            assert isinstance(outcome, Step)
            running -= {end.ticket for end in outcome.ended}
        check_cells(backend)


def decoder_of(backend: LlamaBackend) -> BatchDecoder:
    assert isinstance(backend._engine, Generator)
    return backend._engine.decoder


def check_cells(backend: LlamaBackend) -> None:
    """See that slots in which nobody runs have the cells that are kept, and no others."""
    decoder = decoder_of(backend)
    busy = {each.slot for each in decoder._running.values()}
    kept = {each.slot: len(each.tokens) for each in decoder._slots._prefixes.idle}
    for slot in {*range(N_SLOTS)} - busy:
        assert n_cells(backend, slot) == kept.get(slot, 0)


def n_cells(backend: LlamaBackend, slot: int) -> int:
    """Tell how many positions a slot has."""
    memory = decoder_of(backend)._context._memory
    return int(llama.llama_memory_seq_pos_max(memory, slot)) + 1


@pytest.mark.long
def test_of_hundreds_of_answers_nothing_is_left_but_what_is_kept(backend):
    play(backend, random.Random(1))  # noqa: S311  # the same each time
    decoder = decoder_of(backend)
    assert decoder._running == {}
    assert decoder._slots.saved_bytes <= 2**20
    if decoder._speculation:
        drafter = decoder._speculation._drafter
        assert not getattr(drafter, "_lookups", None)
        assert not getattr(drafter, "_readings", None)
