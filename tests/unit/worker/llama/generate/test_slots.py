"""Prompts that begin like earlier ones, with a real cache of cells."""

import weakref

import msgspec
import numpy as np
import pytest

from inferd.backend.job import Turn
from inferd.limits.worker import CACHED_PREFIX_TOKENS_MIN
from inferd.worker.llama.generate import batch_plan as module, slots
from inferd.worker.llama.generate.slots import n_contiguous_runs
from tests.cases import each_case
from tests.model.tiny import write_tiny_model
from tests.unit.worker.llama.running import (
    N_SLOTS,
    answer,
    collect,
    job,
    load,
    steps,
    take_step,
)

pytestmark = pytest.mark.model

BASE = "the keeper of the lighthouse " * 8
SAVED = 64 * 2**20


@pytest.fixture
def cold(tiny_model):
    """A backend with nothing kept."""
    return load(tiny_model)[0]


def asked(text, **options):
    return job(text, **{"cache": "auto", "owner": 1, "max_tokens": 8, **options})


def reuse(backend, request):
    """Answer; give what was found in the cache, and the answer."""
    backend.start(1, backend.prepare(request))
    took = list(steps(backend))
    [started] = [each for step in took for each in step.started]
    return started.reuse, collect(iter(took))[1]


def common(backend, *texts):
    """Count the tokens that prompts begin with."""
    one, other = (backend.prepare(asked(text)).tokens for text in texts)
    same = [a == b for a, b in zip(one, other, strict=False)]
    return same.index(False) if False in same else len(same)


def slots_of(backend):
    return backend._engine.decoder._slots


def save_idle(backend):
    """Move all that is idle to host memory."""
    kept = slots_of(backend)
    for each in kept._prefixes.idle:
        kept._empty(each.slot)


def test_a_prompt_that_goes_on_is_read_from_where_it_does(cold):
    first, _ = reuse(cold, asked(BASE))
    assert (first.cached_tokens, first.miss) == (0, "no_prefix")
    again, given = reuse(cold, asked(BASE + "and her ship"))
    assert again.cached_tokens == common(cold, BASE, BASE + "and her ship")
    assert again.miss is None
    assert given.end.usage.cached_tokens == again.cached_tokens


def in_two_chunks(backend, request, n_first, monkeypatch):
    """Answer without the cache, by a prompt that is read in two parts.

    How a prompt is cut moves its logits a little, and the answers of this model a lot.
    """
    monkeypatch.setattr(module, "PREFILL_CHUNK_TOKENS", n_first)
    off = msgspec.structs.replace(request, cache="off")
    text = answer(backend, off).text
    monkeypatch.undo()
    return text


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_reused_prefix_gives_the_same_answer(cold, is_saved, monkeypatch):
    request = asked(BASE + "and her ship", max_tokens=24)
    n = common(cold, BASE, BASE + "and her ship")
    expected = in_two_chunks(cold, request, n, monkeypatch)
    reuse(cold, asked(BASE, max_tokens=1))
    if is_saved:
        save_idle(cold)
    found, given = reuse(cold, request)
    assert (found.cached_tokens, bool(found.saved_bytes)) == (n, is_saved)
    assert given.text == expected


def test_a_running_sequences_prefix_gives_the_same_answer(cold, monkeypatch):
    request = asked(BASE + "and her ship", max_tokens=24)
    n = common(cold, BASE, BASE + "and her ship")
    expected = in_two_chunks(cold, request, n, monkeypatch)
    cold.start(2, cold.prepare(asked(BASE, max_tokens=100)))
    for _ in range(5):
        take_step(cold)
    cold.start(1, cold.prepare(request))
    took = list(steps(cold))
    assert took[0].started[0].reuse.cached_tokens == n
    assert collect(iter(took))[1].text == expected


def test_another_user_finds_nothing(cold):
    reuse(cold, asked(BASE, owner=1))
    found, _ = reuse(cold, asked(BASE, owner=2))
    assert (found.cached_tokens, found.miss) == (0, "no_prefix")
    assert reuse(cold, asked(BASE, owner=1))[0].cached_tokens > 0


def test_a_cache_that_is_off_is_neither_used_nor_filled(cold):
    reuse(cold, asked(BASE, cache="off"))
    assert reuse(cold, asked(BASE))[0].miss == "no_prefix"
    found, _ = reuse(cold, asked(BASE, cache="off"))
    assert (found.cached_tokens, found.miss) == (0, "off")


def test_what_is_to_be_discarded_is_used_and_not_kept(cold):
    reuse(cold, asked(BASE))
    found, _ = reuse(cold, asked(BASE + "and her ship", cache="discard"))
    assert found.cached_tokens > 200
    n_tokens = common(cold, BASE, BASE + "and her ship")
    assert reuse(cold, asked(BASE + "and her ship"))[0].cached_tokens <= n_tokens


def test_short_sequences_are_not_kept(cold, monkeypatch):
    monkeypatch.setattr(slots, "CACHED_PREFIX_TOKENS_MIN", 64)
    reuse(cold, asked("hi", max_tokens=2))
    assert reuse(cold, asked("hi", max_tokens=2))[0].miss == "no_prefix"


def test_the_whole_of_a_prompt_but_its_last_token_may_be_known(cold):
    _, first = reuse(cold, asked(BASE))
    found, again = reuse(cold, asked(BASE))
    assert found.cached_tokens == cold.prepare(asked(BASE)).prompt_tokens - 1
    assert again.text == first.text


def test_a_prompt_that_was_cancelled_half_way_is_kept_so_far(cold):
    cold.start(1, cold.prepare(asked("z" * 480, max_tokens=2)))
    cold.start(2, cold.prepare(asked("y" * 400, owner=2, max_tokens=2)))
    take_step(cold)
    n_read = cold._engine.decoder._running[2].n_cached
    for ticket in (1, 2):
        cold.drop(ticket)
    assert 0 < n_read < 400
    found = reuse(cold, asked("y" * 400, owner=2, max_tokens=2))[0]
    assert found.cached_tokens == (n_read if n_read >= CACHED_PREFIX_TOKENS_MIN else 0)


# --- room -------------------------------------------------------------------------------


def test_slots_are_all_used_before_anything_moves_to_host_memory(cold):
    for owner in range(N_SLOTS):
        reuse(cold, asked(BASE, owner=owner))
    idle = slots_of(cold)._prefixes.idle
    assert [(each.owner, each.slot) for each in idle] == [
        (each, each) for each in range(N_SLOTS)
    ]
    assert slots_of(cold).saved_bytes == 0


def test_a_needed_slot_moves_the_oldest_to_host_memory(cold):
    for owner in range(N_SLOTS + 3):
        reuse(cold, asked(BASE, owner=owner))
    idle = slots_of(cold)._prefixes.idle
    assert [each.owner for each in idle] == list(range(3, N_SLOTS + 3))
    assert slots_of(cold).saved_bytes > 0
    assert reuse(cold, asked(BASE, owner=0))[0].cached_tokens > 200


def test_a_prompt_that_comes_again_idles_once(cold):
    for _ in range(4):
        reuse(cold, asked(BASE))
    assert [each.slot for each in slots_of(cold)._prefixes.idle] == [0]


def test_another_answer_to_a_long_prompt_leaves_the_first_one_in_host_memory(cold):
    first, _ = reuse(cold, asked(BASE, max_tokens=100)), None
    [entry] = slots_of(cold)._prefixes.idle
    assert first[0].cached_tokens == 0
    found, _ = reuse(cold, asked(BASE, max_tokens=2))
    assert found.cached_tokens == cold.prepare(asked(BASE)).prompt_tokens - 1
    assert (entry.slot, entry.saved is None) == (None, False)


def test_without_host_memory_evicted_sequences_are_lost(tiny_model):
    backend = load(tiny_model)[0]
    slots_of(backend)._prefixes._max_saved_bytes = 0
    reuse(backend, asked(BASE))
    save_idle(backend)
    assert reuse(backend, asked(BASE))[0].miss == "no_prefix"
    assert slots_of(backend).saved_bytes == 0


def test_without_host_memory_running_prefixes_are_not_copied(tiny_model):
    backend = load(tiny_model)[0]
    slots_of(backend)._prefixes._max_saved_bytes = 0
    expected = answer(backend, asked(BASE, cache="off")).text
    backend.start(2, backend.prepare(asked(BASE, max_tokens=100)))
    take_step(backend)
    backend.start(1, backend.prepare(asked(BASE)))
    took = list(steps(backend))
    assert took[0].started[0].reuse.miss == "no_room"
    assert collect(iter(took))[1].text == expected


def test_what_is_copied_and_what_makes_way_share_host_memory(cold, monkeypatch):
    for owner in range(N_SLOTS):
        reuse(cold, asked(BASE, owner=owner, max_tokens=1))
    slots, context = slots_of(cold), cold._engine._context
    monkeypatch.setattr(slots._prefixes, "_max_saved_bytes", context.state_bytes(0))
    save = context.save
    states: list[weakref.ref[np.ndarray]] = []
    held: list[int] = []

    def saved(slot):
        alive = [state.nbytes for each in states if (state := each()) is not None]
        held.append(sum(alive) + context.state_bytes(slot))
        state = save(slot)
        states.append(weakref.ref(state))
        return state

    monkeypatch.setattr(context, "save", saved)
    cold.start(1, cold.prepare(asked(BASE, owner=0, max_tokens=9)))
    take_step(cold)
    cold.start(2, cold.prepare(asked(BASE, owner=0)))
    list(steps(cold))
    assert len(held) > 1
    assert max(held) <= slots._prefixes._max_saved_bytes


def test_the_prompt_cache_can_be_disabled(tiny_model):
    backend = load(tiny_model, prompt_cache_mb=0)[0]
    reuse(backend, asked(BASE))
    assert reuse(backend, asked(BASE))[0].miss == "off"
    assert slots_of(backend)._prefixes.idle == []


def test_running_sequences_have_all_cells_of_their_slots(cold):
    long = "x" * 480
    for owner in range(N_SLOTS):
        reuse(cold, asked(long, owner=owner, max_tokens=4))
    for ticket in range(N_SLOTS):
        cold.start(ticket, cold.prepare(asked(long, owner=9, cache="off")))
    given = collect(steps(cold))
    assert {len(each.pieces) for each in given.values()} == {8}
    assert len(given) == N_SLOTS


def test_a_state_that_is_not_restored_whole_is_decoded_again(cold):
    expected = reuse(cold, asked(BASE))[1].text
    save_idle(cold)
    [entry] = slots_of(cold)._prefixes._cached
    entry.saved = entry.saved[: len(entry.saved) // 2]
    found, again = reuse(cold, asked(BASE))
    assert (found.cached_tokens, found.miss) == (0, "lost")
    assert again.text == expected


def test_a_sequence_of_little_use_is_not_copied(cold, monkeypatch):
    monkeypatch.setattr(slots_of(cold)._prefixes, "_n_tokens_min", 1)
    reuse(cold, asked(BASE))
    save_idle(cold)
    found, _ = reuse(cold, asked("the dog", max_tokens=2))
    assert (found.cached_tokens, found.miss) == (0, "no_prefix")


def test_a_long_sequence_is_not_moved_for_a_short_prefix(cold):
    long, other = "the keeper " + "z" * 440, "the keeper was"
    reuse(cold, asked(long, max_tokens=1))
    n = common(cold, long, other)
    assert CACHED_PREFIX_TOKENS_MIN <= n < 440 / 16
    found, _ = reuse(cold, asked(other, max_tokens=40))
    assert (found.cached_tokens, found.miss) == (0, "no_prefix")
    assert [each.slot for each in slots_of(cold)._prefixes.idle] == [0, 1]


def test_a_short_common_prefix_is_not_reused(cold):
    reuse(cold, asked(BASE))
    found, _ = reuse(cold, asked("the dog", max_tokens=2))
    assert (found.cached_tokens, found.miss) == (0, "no_prefix")


def test_the_tokens_of_a_kept_sequence_are_those_of_its_cells(cold):
    reuse(cold, asked(BASE, max_tokens=20))
    [entry] = slots_of(cold)._prefixes.idle
    context = cold._engine._context
    sequence = np.array(cold.prepare(asked(BASE)).tokens)
    assert (entry.tokens[: len(sequence)] == sequence).all()
    assert len(entry.tokens) == len(sequence) + 19  # the last was never decoded
    assert context.restore(1, context.save(entry.slot), len(entry.tokens))
    context.remove_cells(1)


# --- side by side -----------------------------------------------------------------------


@each_case(
    ("slots", "expected"),
    [([], 0), ([3], 1), ([0, 1, 2], 1), ([0, 2], 2), ([5, 1, 0, 4, 7], 3)],
)
def test_runs_are_of_slots_side_by_side(slots, expected):
    assert n_contiguous_runs({*slots}) == expected


def test_a_starting_sequence_gets_a_slot_beside_running_ones(cold):
    for owner in range(2):
        reuse(cold, asked(BASE, owner=owner))
    cold.start(1, cold.prepare(asked(BASE, owner=1, max_tokens=50)))
    cold.start(2, cold.prepare(asked("a stranger", owner=7, max_tokens=50)))
    running = cold._engine.decoder._running
    assert [running[ticket].slot for ticket in (1, 2)] == [1, 2]
    cold.start(3, cold.prepare(asked("another", owner=8, max_tokens=50)))
    assert n_contiguous_runs({each.slot for each in running.values()}) == 1


def test_an_idle_prefix_is_copied_to_a_slot_beside_running_ones(cold, monkeypatch):
    request = asked(BASE + "and her ship", owner=2, max_tokens=24)
    n = common(cold, BASE, BASE + "and her ship")
    expected = in_two_chunks(cold, request, n, monkeypatch)
    for owner in range(3):
        reuse(cold, asked(BASE, owner=owner, max_tokens=1))
    cold.start(1, cold.prepare(asked(BASE, owner=0, max_tokens=100)))
    take_step(cold)
    cold.start(2, cold.prepare(request))
    assert cold._engine.decoder._running[2].slot == 1
    [other] = [each for each in slots_of(cold)._prefixes._cached if each.owner == 1]
    assert (other.slot, other.saved is None) == (None, False)
    took = list(steps(cold))
    assert took[0].started[0].reuse.cached_tokens == n
    assert collect(iter(took))[2].text == expected


# --- windows and states -----------------------------------------------------------------

WINDOW = 64
NEAR = BASE + "and her ship"
FAR = BASE[:100] + "and her ship"


@pytest.fixture
def sliding(tmp_path):
    """A backend half of whose layers see no more than a window."""
    path = write_tiny_model(tmp_path / "sliding.gguf", window=WINDOW)
    return load(path, chat_template="chatml")[0]


@pytest.mark.parametrize("text", [NEAR, FAR])
def test_complete_cells_are_truncated_anywhere(sliding, text, monkeypatch):
    request = asked(text, max_tokens=24)
    n = common(sliding, BASE, text)
    expected = in_two_chunks(sliding, request, n, monkeypatch)
    reuse(sliding, asked(BASE, max_tokens=1))
    found, given = reuse(sliding, request)
    assert (found.cached_tokens, given.text) == (n, expected)


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_conversation_continues_from_the_cells_of_its_window(
    sliding, is_saved, monkeypatch
):
    first = asked(BASE, max_tokens=1)
    n = sliding.prepare(first).prompt_tokens
    said = answer(sliding, msgspec.structs.replace(first, cache="off")).text.decode()
    turns = [Turn("user", BASE), Turn("assistant", said), Turn("user", "and then")]
    request = msgspec.structs.replace(asked(BASE, max_tokens=24), turns=turns)
    expected = in_two_chunks(sliding, request, n, monkeypatch)
    reuse(sliding, first)
    if is_saved:
        save_idle(sliding)
    found, given = reuse(sliding, request)
    assert (found.cached_tokens, given.text) == (n, expected)


def test_a_saved_sequence_is_not_truncated_before_its_window(sliding, monkeypatch):
    expected = answer(sliding, asked(FAR, max_tokens=24, cache="off")).text
    reuse(sliding, asked(BASE, max_tokens=1))
    save_idle(sliding)
    found, given = reuse(sliding, asked(FAR, max_tokens=24))
    assert (found.cached_tokens, found.miss) == (0, "window")
    assert given.text == expected


def test_what_others_write_takes_no_cells_from_an_idle_sequence(sliding, monkeypatch):
    request = asked(FAR, max_tokens=24)
    n = common(sliding, BASE, FAR)
    expected = in_two_chunks(sliding, request, n, monkeypatch)
    reuse(sliding, asked(BASE, max_tokens=1))
    for _ in range(2):
        answer(sliding, job("x" * 400, max_tokens=80))
    found, given = reuse(sliding, request)
    assert (found.cached_tokens, given.text) == (n, expected)


def test_a_prefix_that_a_copy_would_lose_is_used_in_its_slot(sliding, monkeypatch):
    request = asked(FAR, owner=2, max_tokens=24)
    n = common(sliding, BASE, FAR)
    expected = in_two_chunks(sliding, request, n, monkeypatch)
    for owner in range(3):
        reuse(sliding, asked(BASE, owner=owner, max_tokens=1))
    sliding.start(1, sliding.prepare(asked(BASE, owner=0, max_tokens=100)))
    take_step(sliding)
    sliding.start(2, sliding.prepare(request))
    assert sliding._engine.decoder._running[2].slot == 2
    took = list(steps(sliding))
    assert took[0].started[0].reuse.cached_tokens == n
    assert collect(iter(took))[2].text == expected


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_recurrent_state_is_not_reused_for_the_same_prompt(
    tiny_mamba, is_saved, monkeypatch
):
    backend = load(tiny_mamba)[0]
    expected = answer(backend, asked(BASE, cache="off")).text
    reuse(backend, asked(BASE, prefill_only=True))
    if is_saved:
        save_idle(backend)
    found, given = reuse(backend, asked(BASE))
    assert (found.cached_tokens, found.miss) == (0, "state")
    assert given.text == expected
