import pytest
from hypothesis import given, settings, strategies as st

from inferd.backend.job import GenerateJob, Sampling, Structure, Turn
from inferd.errors import InvalidRequestError
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.v1 import resolve_v1
from inferd.routing import GENERATES
from inferd.wire.requests import ChatMessage, GenerateRequest
from tests.cases import each_case
from tests.unit.strategies import REQUESTS, U32

TURN = ChatMessage("user", "hi")
BUDGETS = (70, 140, 280, 560, 1120)
SAMPLING = Sampling(temperature=1.0, top_p=0.95, top_k=64, min_p=0.0, seed=7)
PLAN = ResolvedRequest(
    job=GenerateJob(turns=[Turn("user", "hi")], max_tokens=1000, sampling=SAMPLING),
    needs=(GENERATES,),
)


def resolve(**fields):
    return resolve_v1(GenerateRequest(**{"messages": [TURN], **fields}), seed=7)


def refusal(**fields):
    with pytest.raises(InvalidRequestError) as caught:
        resolve(**fields)
    assert caught.value.message == f"invalid request: {caught.value}"
    return str(caught.value)


def test_what_is_left_open_is_the_wires_default():
    assert resolve() == PLAN
    assert (PLAN.priority, PLAN.deadline_ms, PLAN.streams) == (0, None, True)
    assert PLAN.job.structure is None
    assert (SAMPLING.repeat_penalty, SAMPLING.logit_bias) == (1.0, {})
    assert (PLAN.job.stops, PLAN.job.min_tokens, PLAN.job.n_alternatives) == ((), 0, 0)
    assert not PLAN.job.wants_progress
    assert not PLAN.job.prefill_only


def test_a_zero_that_was_asked_for_is_no_default():
    job = resolve(max_tokens=0, temperature=0.0, top_k=0, seed=0).job
    assert (job.max_tokens, job.sampling.temperature) == (0, 0)
    assert (job.sampling.top_k, job.sampling.seed) == (0, 0)
    assert (job.sampling.seed_given, SAMPLING.seed_given) == (True, False)


@settings(max_examples=50)
@given(
    st.floats(0, 2) | st.none(),
    st.floats(0, 1, exclude_min=True) | st.none(),
    U32 | st.none(),
    U32 | st.none(),
)
def test_what_is_in_range_is_kept_as_it_came(temperature, top_p, top_k, max_tokens):
    job = resolve(
        temperature=temperature, top_p=top_p, top_k=top_k, max_tokens=max_tokens
    ).job
    assert job.sampling.temperature == (1.0 if temperature is None else temperature)
    assert job.sampling.top_p == (0.95 if top_p is None else top_p)
    assert job.sampling.top_k == (64 if top_k is None else top_k)
    assert job.max_tokens == (1000 if max_tokens is None else max_tokens)


@settings(max_examples=30)
@given(REQUESTS)
def test_any_request_comes_to_a_plan_or_a_refusal(request_):
    try:
        outcome: object = resolve_v1(request_, seed=7)
    except InvalidRequestError as error:
        outcome = error
    assert isinstance(outcome, ResolvedRequest | InvalidRequestError)


@each_case(
    ("fields", "text"),
    [
        ({"temperature": 2.5}, "temperature 2.5 not in [0, 2]"),
        ({"temperature": -1.0}, "temperature -1 not in [0, 2]"),
        ({"top_p": 0.0}, "top_p 0 not in (0, 1]"),
        ({"top_p": 2.0}, "top_p 2 not in (0, 1]"),
        ({"seed": 2**32 - 1}, "seed 4294967295 not in [0, 4294967294]"),
        ({"stop": ["x", ""]}, "stop[1] has 0 bytes, 1 to 256 are allowed"),
        ({"stop": ["x"] * 17}, "stop has 17 strings, at most 16 are allowed"),
        (
            {"grammar": "|" * 4097},
            "grammar has 4097 alternatives (|), at most 4096 are allowed",
        ),
        ({"messages": []}, "messages must not be empty"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(fields, text):
    assert refusal(**fields) == text


@settings(max_examples=50)
@given(st.sampled_from(BUDGETS) | U32)
def test_an_image_token_budget_is_one_of_five_or_named_with_them(value):
    if value in BUDGETS:
        assert resolve(image_token_budget=value) == PLAN
    else:
        assert refusal(image_token_budget=value) == (
            f"image_token_budget {value} not in [70, 140, 280, 560, 1120]"
        )


@each_case("budget", BUDGETS)
def test_each_budget_of_the_wire_is_accepted(budget):
    assert resolve(image_token_budget=budget) == PLAN


def test_an_empty_conversation_is_told_before_a_wrong_budget():
    assert refusal(messages=[], image_token_budget=1) == "messages must not be empty"


def test_an_empty_text_is_a_message():
    [turn] = resolve(messages=[ChatMessage("user", "")]).job.turns
    assert turn.text == ""


def test_what_ends_an_answer_and_what_seeds_it_are_passed_on():
    job = resolve(stop=["a", "b"], seed=2**32 - 2, grammar="x").job
    assert job.stops == ("a", "b")
    assert (job.sampling.seed, job.structure) == (
        2**32 - 2,
        Structure(kind="gbnf", source="x", in_v1=True),
    )


@pytest.mark.parametrize("wanted", [None, False, True])
def test_frames_are_streamed_unless_they_are_not_wanted(wanted):
    assert resolve(stream=wanted).streams is (wanted is not False)


@pytest.mark.parametrize("wanted", [None, False, True])
def test_progress_is_told_only_if_it_is_wanted(wanted):
    assert resolve(progress=wanted).job.wants_progress is (wanted is True)
