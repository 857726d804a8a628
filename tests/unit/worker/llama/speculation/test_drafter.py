import random

import pytest

from inferd.backend.job import Sampling, Structure
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.ipc.worker import Step
from inferd.limits.worker import OUTPUTS_PER_SLOT
from inferd.worker.llama.generate.sequence import RunningSequence
from inferd.worker.llama.model.batch import Batch
from inferd.worker.llama.speculation.acceptance import AcceptanceRate, BatchCosts
from inferd.worker.llama.speculation.drafter import Drafter, LookupDrafter, Speculation
from tests.unit.worker.llama.running import (
    GREEDY,
    WritingBackend,
    answer,
    collect,
    job,
    load,
    steps,
    take_step,
)

pytestmark = pytest.mark.model

SAMPLED = Sampling(temperature=1, top_p=1, top_k=0, seed=5)
LOOPING = Sampling(temperature=0, top_p=1, top_k=0, seed=0, logit_bias={290: 9.0})


class WildDrafter(Drafter):
    """Guesses as many tokens as it may, or fewer; now and then they are right."""

    def __init__(self, known):
        self._random = random.Random(7)  # noqa: S311  # wrong in the same way each time
        self._known = known
        self.dropped = []

    def draft(self, wanted):
        return {each: self._guess(each, n) for each, n in wanted.items()}

    def _guess(self, sequence, n):
        at = sequence.n_written
        right = self._known[at : at + self._random.randrange(n + 1)]
        wrong = [self._random.randrange(300) for _ in range(n - len(right))]
        return (right + wrong)[: self._random.randrange(n + 1)]

    def drop(self, ticket):
        self.dropped.append(ticket)

    def use_threads(self, n_threads):
        pass


@pytest.mark.parametrize(
    ("tokens", "guess"),
    [
        ([7, 8, -5, -6, 7, 8], []),
        ([7, 8, 9, -5, 7, 8], [9]),
        ([7, 8, 9, 7, 8], [9, 7, 8, 9]),
    ],
)
def test_a_lookup_drafts_no_placeholders_of_media(backend, tokens, guess):
    prepared = backend.prepare(job("hello"))
    prepared.tokens = tokens
    sequence = RunningSequence(1, 0, prepared)
    assert LookupDrafter().draft({sequence: 4}) == {sequence: guess}


@pytest.fixture
def eager(monkeypatch):
    def n_drafts(self, costs, *, n_streams, at_most):
        return at_most

    monkeypatch.setattr(AcceptanceRate, "n_drafts", n_drafts)


@pytest.fixture(scope="module")
def with_lookup(tiny_model):
    return load(tiny_model, speculation="lookup", draft_max=7)[0]


def guesses_of(took):
    told = [guesses for step in took for _, guesses in step.drafted]
    return (
        sum(each.drafted_tokens for each in told),
        sum(each.accepted_tokens for each in told),
    )


def run(backend, asked):
    backend.start(1, backend.prepare(asked))
    return list(steps(backend))


@pytest.fixture
def wild(backend, monkeypatch, eager):
    """A backend whose answers are guessed wildly, knowing what is to come."""

    def make(known):
        drafter = WildDrafter(known)
        speculation = Speculation(drafter, draft_max=7)
        monkeypatch.setattr(backend._engine.decoder, "_speculation", speculation)
        return drafter

    return make


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_random_drafts_change_no_answer(backend, wild, sampling):
    asked = job(sampling=sampling, n_alternatives=1, max_tokens=60)
    plain = answer(backend, asked)
    wild([each.id for each in plain.logprobs])
    took = run(backend, asked)
    given = collect(iter(took))[1]
    assert (given.pieces, given.end) == (plain.pieces, plain.end)
    assert [each.id for each in given.logprobs] == [each.id for each in plain.logprobs]
    drafted, accepted = guesses_of(took)
    assert drafted > accepted > 0


@pytest.mark.parametrize("options", [{"repeat_penalty": 1.3}, {"min_p": 0.05}])
def test_options_of_the_choice_hold_where_tokens_are_guessed(backend, wild, options):
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=9, seed=4, **options)
    asked = job(sampling=sampling, max_tokens=40)
    told = answer(backend, job(sampling=sampling, max_tokens=40, n_alternatives=1))
    wild([each.id for each in told.logprobs])
    assert answer(backend, asked).pieces == told.pieces


def test_accepted_drafts_and_steps_add_up(backend, wild):
    known = answer(backend, job(max_tokens=60, n_alternatives=1)).logprobs
    wild([each.id for each in known])
    took = run(backend, job(max_tokens=60))
    _, accepted = guesses_of(took)
    assert len(took) + accepted == 60
    rows = [guesses for step in took for _, guesses in step.drafted]
    assert all(each.accepted_tokens <= each.drafted_tokens <= 7 for each in rows)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, LOOPING])
def test_lookups_change_no_answer(backend, with_lookup, sampling):
    for text in ("abcabcabc", "a rose is a rose is a rose"):
        asked = job(text, sampling=sampling, max_tokens=120)
        assert answer(with_lookup, asked) == answer(backend, asked)


@pytest.mark.usefixtures("eager")
def test_an_answer_that_repeats_itself_takes_fewer_steps(with_lookup):
    took = run(with_lookup, job(sampling=LOOPING, max_tokens=80))
    drafted, accepted = guesses_of(took)
    assert len(took) + accepted == 80
    assert accepted > 0.8 * drafted > 50


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_lookups_and_structures_go_together(backend, with_lookup, sampling):
    structure = Structure(kind="regex", source="((yes|no|perhaps), ){12}end")
    asked = job(structure=structure, sampling=sampling, max_tokens=200)
    plain = answer(backend, asked)
    took = run(with_lookup, asked)
    given = collect(iter(took))[1]
    assert (given.pieces, given.end) == (plain.pieces, plain.end)
    assert guesses_of(took)[1] > 0
    told = [guesses for step in took for _, guesses in step.drafted]
    assert all(each.accepted_tokens <= each.drafted_tokens for each in told)


@pytest.mark.usefixtures("eager")
def test_several_answers_are_guessed_at_once_and_are_what_they_are_alone(
    backend, with_lookup
):
    asked = {n: job("ab" * n, sampling=LOOPING, max_tokens=30 * n) for n in (1, 2, 3)}
    expected = {n: answer(backend, each).text for n, each in asked.items()}
    for n, each in asked.items():
        with_lookup.start(n, with_lookup.prepare(each))
    given = collect(steps(with_lookup))
    assert {n: each.text for n, each in given.items()} == expected


@pytest.mark.usefixtures("eager")
def test_a_dropped_answer_leaves_no_drafts(backend, with_lookup):
    asked = job("abab", sampling=LOOPING, max_tokens=90)
    expected = answer(backend, asked)
    for n_steps in range(1, 8):
        with_lookup.start(1, with_lookup.prepare(asked))
        list(steps(with_lookup, n_steps))
        with_lookup.drop(1)
    decoder = with_lookup._engine.decoder
    assert decoder._speculation._drafter._lookups == {}
    assert decoder._running == {}
    assert answer(with_lookup, asked) == expected


def test_an_answer_that_ends_is_dropped(backend, wild):
    drafter = wild([])
    answer(backend, job(max_tokens=3))
    assert drafter.dropped == [1]


def test_no_draft_goes_beyond_the_end_of_the_answer(backend, wild, monkeypatch):
    drafter = wild([])
    wanted_at: list[tuple[int, int]] = []

    def draft(wanted):
        wanted_at.extend((each.n_written, n) for each, n in wanted.items())
        return {}

    monkeypatch.setattr(drafter, "draft", draft)
    answer(backend, job(max_tokens=5))
    assert wanted_at == [(1, 3), (2, 2), (3, 1)]


def test_a_model_that_cannot_take_back_tokens_gets_no_drafts(tiny_mamba, monkeypatch):
    backend, _ = load(tiny_mamba)
    add = Batch.add
    n_logits_given = []

    def noted(self, tokens, *, n_logits, **place):
        n_logits_given.append(n_logits)
        return add(self, tokens, n_logits=n_logits, **place)

    monkeypatch.setattr(Batch, "add", noted)
    structure = Structure(
        kind="regex", source="(yes|no), lighthouses( and ships)?[a-d]"
    )
    given = answer(backend, job(structure=structure))
    assert given.end.structure_complete
    assert max(n_logits_given) == 1


def test_text_that_does_not_repeat_itself_is_soon_left_alone(backend, monkeypatch):
    class Wrong(LookupDrafter):
        def draft(self, wanted):
            return {each: [7] * n for each, n in wanted.items()}

    monkeypatch.setattr(BatchCosts, "observe", lambda *_: None)  # on whatever machine
    speculation = Speculation(Wrong(), draft_max=7)
    monkeypatch.setattr(backend._engine.decoder, "_speculation", speculation)
    took = run(backend, job(max_tokens=150))
    late = took[30:]
    assert all(isinstance(step, Step) for step in took)
    assert sum(bool(step.drafted) for step in late) < len(late) / 8


def test_prompts_are_read_before_anything_is_guessed(with_lookup):
    with_lookup.start(1, with_lookup.prepare(job("ababababab", max_tokens=4)))
    assert take_step(with_lookup).drafted == []
    with_lookup.drop(1)


# --- beside a grammar's own tokens ----------------------------------------------------

LONG = Structure(kind="regex", source="lighthouses and ships at sea, [a-z ]{200}")


@pytest.fixture
def added(monkeypatch):
    """What sequences have in batches: the place behind it, and its rows of scores."""
    found: list[tuple[int, int]] = []
    add = Batch.add

    def noted(self, tokens, *, at, n_logits, sequence):
        found.append((at + len(tokens), n_logits))
        return add(self, tokens, at=at, n_logits=n_logits, sequence=sequence)

    monkeypatch.setattr(Batch, "add", noted)
    return found


def test_likely_tokens_and_guesses_have_no_more_rows_than_there_are(
    backend, wild, added
):
    wild([7] * 200)
    asked = job(structure=LONG, n_alternatives=1, max_tokens=60)
    answer(backend, asked)
    assert max(n_rows for _, n_rows in added) == OUTPUTS_PER_SLOT


@pytest.mark.parametrize("max_tokens", [1, 2, 5, 9, 30])
def test_no_draft_goes_where_an_answer_has_no_cells(backend, wild, added, max_tokens):
    wild([7] * 200)
    asked = job(structure=LONG, n_alternatives=1, max_tokens=max_tokens)
    room = backend.prepare(asked).prompt_tokens + max_tokens
    answer(backend, asked)
    assert max(end for end, _ in added) < room


def test_an_answer_fills_the_context_to_its_last_cell(tiny_model):
    backend = WritingBackend(
        LlamaCppSettings(name="t", model=str(tiny_model), n_ctx=256, n_threads=1),
        n_slots=1,
    )
    backend.load(lambda _: None)
    fixed = Structure(kind="regex", source="(lighthouse ){30}")
    asked = job("x" * 193, structure=fixed, n_alternatives=1, max_tokens=99)
    given = answer(backend, asked)
    usage = given.end.usage
    assert usage.prompt_tokens + usage.completion_tokens == 256


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_drafted_stop_tokens_end_no_answer_before_min_tokens(backend, wild, sampling):
    free = answer(backend, job(sampling=sampling, n_alternatives=1))
    known = [each.id for each in free.logprobs]
    asked = job(
        sampling=sampling,
        stop_token_ids=tuple({*known}),
        min_tokens=9,
        n_alternatives=1,
    )
    plain = answer(backend, asked)
    assert plain.end.usage.completion_tokens >= 9
    assert not {each.id for each in plain.logprobs[:9]} & {*known}
    wild(known)
    given = answer(backend, asked)
    assert (given.pieces, given.end) == (plain.pieces, plain.end)
