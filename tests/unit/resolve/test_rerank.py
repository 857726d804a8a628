import pytest

from inferd.backend.job import RerankJob
from inferd.errors import InvalidRequestError
from inferd.limits.protocol import MAX_RERANK_BYTES
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.rerank import resolve_rerank
from inferd.routing import RERANKS
from inferd.wire.requests import RerankRequest
from tests.cases import each_case


def resolve(**fields):
    return resolve_rerank(
        RerankRequest(**{"query": "q", "documents": ["one"], **fields})
    )


def refusal(**fields):
    with pytest.raises(InvalidRequestError) as caught:
        resolve(**fields)
    assert caught.value.message == f"invalid request: {caught.value}"
    return str(caught.value)


def test_a_query_and_documents_will_do():
    job = RerankJob(query=" ", documents=["one", "one"])
    plan = ResolvedRequest(job=job, needs=(RERANKS,))
    assert resolve(query=" ", documents=["one", "one"]) == plan


@each_case("top_n", [None, 1, 2, 2**32 - 1])
def test_more_than_there_are_may_be_asked_for(top_n):
    assert resolve(top_n=top_n) == resolve()


def test_as_many_documents_as_may_be():
    assert len(resolve(documents=["x"] * 256).job.documents) == 256


@each_case(
    ("fields", "text"),
    [
        ({"query": ""}, "query must not be empty"),
        ({"documents": []}, "documents must not be empty"),
        ({"documents": ["one", ""]}, "documents[1] must not be empty"),
        (
            {"documents": ["x"] * 300},
            "documents has 300 entries, at most 256 are allowed",
        ),
        (
            {"documents": [""] * 257},
            "documents has 257 entries, at most 256 are allowed",
        ),
        ({"top_n": 0}, "top_n 0 not in [1, 4294967295]"),
        ({"query": "", "documents": [], "top_n": 0}, "query must not be empty"),
        ({"documents": [], "top_n": 0}, "documents must not be empty"),
        ({"documents": [""], "top_n": 0}, "documents[0] must not be empty"),
    ],
)
def test_what_cannot_be_scored_is_refused_by_the_first_reason(fields, text):
    assert refusal(**fields) == text


@pytest.mark.parametrize("letter", ["a", "é"])
def test_text_is_counted_in_bytes_query_and_documents_together(monkeypatch, letter):
    monkeypatch.setattr("inferd.resolve.rerank.MAX_RERANK_BYTES", 12)
    fits = letter * (4 // len(letter.encode()))
    assert resolve(query=fits, documents=[fits, fits]).job.query == fits
    n_bytes = 12 + len(letter.encode())
    for fields in (
        {"query": fits + letter, "documents": [fits, fits]},
        {"query": fits, "documents": [fits, fits, letter], "top_n": 0},
    ):
        assert refusal(**fields) == (
            f"query and documents have {n_bytes} bytes, at most 12 are allowed"
        )


def test_the_bound_is_that_of_the_wire():
    assert MAX_RERANK_BYTES == 8388608
