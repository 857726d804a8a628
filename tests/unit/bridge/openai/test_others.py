import json
import struct
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET, Raw

from inferd.bridge.apis import APIS, api_of
from inferd.bridge.openai.api import OPENAI, model_list
from inferd.bridge.openai.completions import ask_completion
from inferd.bridge.openai.failures import failure_body
from inferd.bridge.openai.vectors import as_base64, ask_embeddings, ask_rerank
from inferd.bridge.translation.api import OfferedModel
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.fields import Use
from inferd.bridge.translation.question import Question
from inferd.client.frames import ClientBlocksDone
from inferd.limits.protocol import U32_MAX
from inferd.wire.blocks import BlocksRequest, TextBlock
from inferd.wire.requests import EmbedRequest, RerankRequest
from inferd.wire.responses import (
    BlockFrame,
    EmbeddingsFrame,
    EncodeUsage,
    RankedDocument,
    RerankFrame,
    TextDelta,
    UsageV2,
)
from tests.cases import each_case
from tests.fakes.bridge_answers import ASKED, whole


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


# --- completions --------------------------------------------------------------------


def test_a_prompt_is_a_message_and_its_completion_a_text():
    question = ask_completion(body(prompt=["Say hi"], model="m"), ASKED)
    assert isinstance(question.request, BlocksRequest)
    assert question.request.conversation[0].content == [TextBlock("Say hi")]
    assert question.request.max_tokens == 16
    end = ClientBlocksDone(
        id="req_1", usage=UsageV2(2, 1), stop_reason="max_tokens", backend="chat"
    )
    found = whole(question, BlockFrame(id="req_1", block=TextDelta("hi")), end)
    assert found["choices"] == [
        {"index": 0, "text": "hi", "logprobs": None, "finish_reason": "length"}
    ]
    assert found["usage"]["total_tokens"] == 3


@each_case("prompt", [[1, 2], [[1, 2]]])
def test_a_prompt_may_be_tokens(prompt):
    request = ask_completion(body(prompt=prompt), ASKED).request
    assert isinstance(request, BlocksRequest)
    assert (request.messages, request.input_tokens) == (UNSET, [1, 2])


@each_case(
    "prompt", [["a", "b"], [[1], [2]], [], [[]], [1, "a"], [-1], [True], [2**32]]
)
def test_other_prompts_are_refused(prompt):
    with pytest.raises(BridgeError, match="^prompt: "):
        ask_completion(body(prompt=prompt), ASKED)


# --- embeddings ---------------------------------------------------------------------


def embeddings(**fields: Any) -> Question:
    return ask_embeddings(body(**fields), ASKED)


def vectors(*rows: list[float]) -> EmbeddingsFrame:
    return EmbeddingsFrame(
        id="req_1",
        embeddings=Raw(json.dumps(rows).encode()),
        dimensions=2,
        model="mini",
        usage=EncodeUsage(4),
        backend="embed",
    )


def test_texts_become_vectors_in_order():
    question = embeddings(input=["a", "b"], dimensions=2, model="m")
    assert question.request == EmbedRequest(
        id="req_1", input=["a", "b"], dimensions=2, model="m"
    )
    found = whole(question, vectors([0.5, 1.0], [2.0, 3.0]))
    assert [each["embedding"] for each in found["data"]] == [[0.5, 1.0], [2.0, 3.0]]
    assert [each["index"] for each in found["data"]] == [0, 1]
    assert found["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_base64_has_little_endian_floats(vector):
    data = b64decode(as_base64(Raw(json.dumps(vector).encode())))
    assert list(struct.unpack(f"<{len(vector)}f", data)) == vector


def test_base64_is_used_where_it_is_wanted():
    question = embeddings(input="a", encoding_format="base64")
    [entry] = whole(question, vectors([1.0, 2.0]))["data"]
    assert struct.unpack("<2f", b64decode(entry["embedding"])) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("given_input", "tokens"),
    [([1, 0], [[1, 0]]), ([[1], [U32_MAX, 2]], [[1], [U32_MAX, 2]]), ([[]], [[]])],
)
def test_tokens_are_passed_on_as_such(given_input, tokens):
    question = embeddings(input=given_input)
    assert question.request == EmbedRequest(id="req_1", tokens=tokens)
    assert question.field_names["tokens"] == "input"


def test_no_texts_are_left_for_the_daemon_to_refuse():
    assert embeddings(input=[]).request == EmbedRequest(id="req_1", input=[])


@each_case(
    "given_input",
    [["a", 1], [1, [1]], [[1], "a"], [["a"]], [-1], [[U32_MAX + 1]], [1.5], [True]],
)
def test_what_is_neither_texts_nor_tokens_is_refused(given_input):
    with pytest.raises(BridgeError) as caught:
        embeddings(input=given_input)
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert str(caught.value.param).startswith("input")


# --- reranking ----------------------------------------------------------------------


@pytest.mark.parametrize("shows", [False, True])
def test_documents_are_ranked(shows):
    question = ask_rerank(
        body(query="q", documents=["a", {"text": "b"}], return_documents=shows), ASKED
    )
    assert question.request == RerankRequest(
        id="req_1", query="q", documents=["a", "b"]
    )
    ranked = [RankedDocument(1, 2.5), RankedDocument(0, -1.0)]
    frame = RerankFrame(
        id="req_1", results=ranked, model="r", usage=EncodeUsage(4), backend="rerank"
    )
    first, _ = whole(question, frame)["results"]
    document = {"document": {"text": "b"}} if shows else {}
    assert first == {"index": 1, "relevance_score": 2.5, **document}
    question = ask_rerank(body(query="q", texts=["a", "b"], return_text=shows), ASKED)
    first, _ = whole(question, frame)
    text = {"text": "b"} if shows else {}
    assert first == {"index": 1, "score": pytest.approx(0.92414, abs=1e-5), **text}


def test_scores_are_raw_or_between_0_and_1_as_asked():
    ranked = [RankedDocument(0, 800.0), RankedDocument(1, -800.0)]
    frame = RerankFrame(
        id="req_1", results=ranked, model="r", usage=EncodeUsage(4), backend="rerank"
    )
    for fields, scores in (
        ({"texts": ["a", "b"]}, [1, 0]),  # as Text Embeddings Inference has it
        ({"texts": ["a", "b"], "raw_scores": True}, [800, -800]),
        ({"documents": ["a", "b"]}, [800, -800]),
        ({"documents": ["a", "b"], "raw_scores": False}, [1, 0]),
    ):
        told = whole(ask_rerank(body(query="q", **fields), ASKED), frame)
        listed = told if isinstance(told, list) else told["results"]
        found = [each.get("score", each.get("relevance_score")) for each in listed]
        assert found == scores, fields


@pytest.mark.parametrize("fields", [{}, {"documents": ["a"], "texts": ["a"]}])
def test_documents_or_texts_are_needed_to_rank(fields):
    with pytest.raises(BridgeError) as caught:
        ask_rerank(body(query="q", **fields), ASKED)
    assert caught.value.param == "documents"


@each_case(
    ("fields", "param"),
    [
        ({"documents": ["a"], "return_text": True}, "return_text"),
        ({"texts": ["a"], "return_documents": True}, "return_documents"),
        ({"documents": ["a"], "max_tokens_per_doc": 9}, "max_tokens_per_doc"),
        ({"texts": ["a"], "raw_scores": 1}, "raw_scores"),
    ],
)
def test_what_a_ranking_would_lack_is_refused(fields, param):
    with pytest.raises(BridgeError) as caught:
        ask_rerank(body(query="q", **fields), ASKED)
    assert caught.value.param == param


def test_what_asks_for_nothing_is_accepted_of_other_rankers_forms():
    fields = {"truncation": True, "priority": 0, "return_embeddings": False}
    question = ask_rerank(body(query="q", documents=["a"], **fields), ASKED)
    assert question.request == RerankRequest(id="req_1", query="q", documents=["a"])


# --- the record ---------------------------------------------------------------------


def test_models_are_listed_with_their_uses():
    found = json.loads(model_list([OfferedModel("chat", ("generate",))], 7))
    [entry] = found["data"]
    assert (entry["id"], entry["object"], entry["uses"]) == (
        "chat",
        "model",
        ["generate"],
    )


def test_failures_have_openais_form():
    failure = BridgeError(Reason.QUEUE_FULL, "full", param="x")
    assert json.loads(failure_body(failure)) == {
        "error": {
            "message": "full",
            "type": "rate_limit_error",
            "param": "x",
            "code": "queue_full",
        }
    }


@each_case("reason", Reason)
def test_who_is_at_fault_follows_from_the_status(reason):
    failure = BridgeError(reason, "x")
    kind = json.loads(failure_body(failure))["error"]["type"]
    assert (kind == "server_error") is (failure.status >= 500)


def test_a_path_below_no_prefix_has_a_form_all_the_same():
    assert api_of("/v1/x") is OPENAI
    assert api_of("elsewhere") is APIS[0]


@each_case("operation", OPENAI.operations, ids=lambda each: each.path)
def test_a_field_is_in_its_table_once_and_refused_with_a_reason(operation):
    names = [field.name for field in operation.table.fields]
    assert len(names) == len(set(names))
    refused = [each for each in operation.table.fields if each.use is Use.REFUSED]
    assert all(each.note for each in refused)
