from dataclasses import replace

import pytest
from msgspec import structs

from inferd.bridge.anthropic.request import ask_message
from inferd.bridge.translation.question import Question
from inferd.bridge.upstream.plain_models import PlainModels
from inferd.bridge.upstream.second_try import second_try
from inferd.client.frames import ClientErrorFrame
from inferd.limits.bridge import MAX_PLAIN_MODELS, PLAIN_MODEL_S
from tests.fakes.bridge_answers import ASKED, generated

BODY = (
    b'{"model":"small","max_tokens":9,"messages":[{"role":"user","content":"hi"}],'
    b'"thinking":{"type":"adaptive"}}'
)
ADAPTIVE = replace(ask_message(BODY, ASKED), other_names=("small:latest",))
PLAIN = 'model "small" has no support for reasoning traces; no model here can do this'
UNKNOWN = 'model "small" is not served here; names that can do this: big'


def refusal(message: str, code: str = "model_not_found") -> ClientErrorFrame:
    return ClientErrorFrame(id="req_1", code=code, message=message)


def tries(question: Question, *messages: str) -> list[tuple[str | None, bool | None]]:
    """Give model and reasoning of each request that follows from a refusal."""
    request = question.request
    found = []
    for message in messages:
        again = second_try(question, request, refusal(message))
        if again is None:
            break
        request = again
        sent = generated(replace(question, request=again))
        found.append((sent.model, sent.thinking))
    return found


def test_each_change_is_tried_once():
    assert tries(ADAPTIVE, PLAIN, PLAIN) == [("small", None)]
    assert tries(ADAPTIVE, *[UNKNOWN] * 9) == [
        ("small:latest", True),
        ("small", None),
        ("small:latest", None),
    ]
    assert tries(ADAPTIVE, UNKNOWN, PLAIN, UNKNOWN) == [
        ("small:latest", True),
        ("small:latest", None),
    ]


def test_a_refusal_is_final_where_nothing_may_be_changed():
    forced = replace(ADAPTIVE, reasons_if_able=False, other_names=())
    for message in (PLAIN, UNKNOWN):
        assert tries(forced, message) == []
    full = refusal(UNKNOWN, code="queue_full")
    assert second_try(ADAPTIVE, ADAPTIVE.request, full) is None


def test_a_refusal_that_is_told_is_that_of_a_request_without_reasoning():
    other = (
        'model "small" has no support for text generation; no model here can do this'
    )
    assert tries(ADAPTIVE, other, other) == [("small", None)]


async def test_a_model_is_not_asked_to_reason_for_a_while(autojump_clock):
    models = PlainModels()
    models.add("small")
    asked = models.without_reasoning(ADAPTIVE, ADAPTIVE.request)
    assert generated(replace(ADAPTIVE, request=asked)).thinking is None
    forced = replace(ADAPTIVE, reasons_if_able=False)
    assert models.without_reasoning(forced, forced.request) is forced.request
    other = structs.replace(generated(ADAPTIVE), model="big")
    assert models.without_reasoning(ADAPTIVE, other) is other
    autojump_clock.jump(PLAIN_MODEL_S)
    assert models.without_reasoning(ADAPTIVE, ADAPTIVE.request) is ADAPTIVE.request


@pytest.mark.usefixtures("autojump_clock")
async def test_only_so_many_models_are_remembered():
    models = PlainModels()
    for number in range(MAX_PLAIN_MODELS):
        models.add(f"m{number}")
    models.add("small")
    assert models.without_reasoning(ADAPTIVE, ADAPTIVE.request) is ADAPTIVE.request
