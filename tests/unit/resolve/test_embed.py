import pytest
from msgspec import UNSET

from inferd.backend.job import EmbedJob
from inferd.errors import InvalidRequestError
from inferd.limits.protocol import MAX_EMBED_INPUTS, MAX_FRAME_BYTES, U32_MAX
from inferd.resolve.embed import check_answer_fits, resolve_embed
from inferd.resolve.request import ResolvedRequest
from inferd.routing import EMBEDS
from inferd.wire.requests import EmbedRequest
from tests.cases import each_case

TASKS = [
    *("retrieval_query", "retrieval_document", "similarity", "classification"),
    *("clustering", "question_answering", "fact_verification", "code_retrieval_query"),
]
NUMBER = "-1.2345678901234567e-38,"
"""The longest way to write a number of 32 bits, with its comma."""


def resolve(**fields):
    return resolve_embed(EmbedRequest(**{"input": ["one"], **fields}))


def refusal(check, *arguments, **keywords):
    with pytest.raises(InvalidRequestError) as caught:
        check(*arguments, **keywords)
    assert caught.value.message == f"invalid request: {caught.value}"
    return str(caught.value)


def job_of(n_texts, dimensions=None):
    return EmbedJob(texts=["x"] * n_texts, dimensions=dimensions, task=None)


def test_texts_and_nothing_else_will_do():
    job = EmbedJob(texts=["one", " "], dimensions=None, task=None)
    assert resolve(input=["one", " "]) == ResolvedRequest(job=job, needs=(EMBEDS,))


@each_case("dimensions", [1, 256, 2**32 - 1])
@each_case("task", TASKS)
def test_tasks_and_dimensions_are_passed_on(task, dimensions):
    job = resolve(task=task, dimensions=dimensions).job
    assert (job.task, job.dimensions) == (task, dimensions)


def test_as_many_texts_as_may_be():
    assert MAX_EMBED_INPUTS == 2048
    assert len(resolve(input=["x"] * 2048).job.texts) == 2048
    assert len(resolve(input=UNSET, tokens=[[1]] * 2048).job.tokens) == 2048


def test_tokens_take_the_place_of_texts():
    job = EmbedJob(tokens=[[7, 0], [U32_MAX]], dimensions=3, task=None)
    asked = resolve(input=UNSET, tokens=[[7, 0], [U32_MAX]], dimensions=3)
    assert asked == ResolvedRequest(job=job, needs=(EMBEDS,))


@each_case(
    ("fields", "text"),
    [
        ({"input": []}, "input must not be empty"),
        ({"input": ["x"] * 2049}, "input has 2049 entries, at most 2048 are allowed"),
        ({"input": ["one", ""]}, "input[1] must not be empty"),
        ({"input": [""]}, "input[0] must not be empty"),
        ({"input": UNSET, "tokens": []}, "tokens must not be empty"),
        (
            {"input": UNSET, "tokens": [[1]] * 2049},
            "tokens has 2049 entries, at most 2048 are allowed",
        ),
        ({"input": UNSET, "tokens": [[1], []]}, "tokens[1] must not be empty"),
        ({"input": [], "tokens": []}, "tokens and input exclude each other"),
        (
            {"input": UNSET, "tokens": [[1]], "task": "similarity"},
            "task adds words to texts, not to tokens; send their tokens with the others",
        ),
        ({"task": "poetry"}, "task uses an unknown variant"),
        ({"task": ""}, "task uses an unknown variant"),
        ({"task": "Similarity"}, "task uses an unknown variant"),
        ({"dimensions": 0}, "dimensions 0 must be at least 1"),
        ({"input": [], "task": "odd"}, "input must not be empty"),
        ({"input": [""] * 2049}, "input has 2049 entries, at most 2048 are allowed"),
        ({"input": [""], "task": "odd"}, "input[0] must not be empty"),
        ({"task": "odd", "dimensions": 0}, "task uses an unknown variant"),
    ],
)
def test_what_cannot_be_embedded_is_refused_by_the_first_reason(fields, text):
    assert refusal(resolve, **fields) == text


# --- the answer -------------------------------------------------------------------------


@pytest.mark.parametrize(("n_embd", "dimensions"), [(384, None), (384, 1), (0, None)])
def test_vectors_of_usual_models_fit_however_many(n_embd, dimensions):
    check_answer_fits(job_of(MAX_EMBED_INPUTS, dimensions), n_embd=n_embd)


@pytest.mark.parametrize(
    ("n_embd", "dimensions", "counted"),
    [(4096, None, 4096), (8192, 4096, 4096), (4096, 2**32 - 1, 4096)],
)
def test_more_vectors_than_fit_are_refused_with_how_many_do(
    n_embd, dimensions, counted
):
    check_answer_fits(job_of(681, dimensions), n_embd=n_embd)
    text = refusal(check_answer_fits, job_of(682, dimensions), n_embd=n_embd)
    assert text == (
        f"input has 682 entries, at most 681 vectors of {counted} dimensions fit "
        "an answer"
    )
    tokens = EmbedJob(tokens=[[1]] * 682, dimensions=dimensions, task=None)
    text = refusal(check_answer_fits, tokens, n_embd=n_embd)
    assert text.startswith("tokens has 682 entries, at most 681 vectors")


@each_case("n_embd", [1400, 2048, 4096, 16384])
def test_what_is_let_through_fits_with_room_for_the_rest_of_the_frame(n_embd):
    n_texts = 0
    for n in range(1, MAX_EMBED_INPUTS + 1):
        try:
            check_answer_fits(job_of(n), n_embd=n_embd)
        except InvalidRequestError:
            break
        n_texts = n
    vector = len(NUMBER) * n_embd - 1 + len("[],")
    assert 0 < n_texts * vector <= MAX_FRAME_BYTES - 32 * 1024
    assert (n_texts + 2) * vector > MAX_FRAME_BYTES or n_texts == MAX_EMBED_INPUTS
