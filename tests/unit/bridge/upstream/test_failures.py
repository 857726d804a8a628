import pytest

from inferd.backend.capabilities import BackendCapabilities
from inferd.bridge.translation.failures import Reason
from inferd.bridge.upstream.failures import failure_of, refusal_of
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ConnectionLostError, ProtocolError
from inferd.client.frames import ClientErrorFrame
from inferd.errors import ErrorCode, ModelNotFoundError
from inferd.routing import (
    HANDLES_AUDIO,
    HAS_REASONING,
    TAKES_AUDIO,
    TAKES_IMAGES,
    route,
)
from tests.cases import each_case
from tests.fakes.backend import ScriptedBackend


def frame(code: str, message: str = "no", **fields: object) -> ClientErrorFrame:
    return ClientErrorFrame(id="r", code=code, message=message, **fields)  # type: ignore[arg-type]


@each_case("code", ErrorCode)
def test_every_code_of_the_daemon_has_a_status_of_its_own_kind(code):
    failure = refusal_of(frame(code))
    is_bug = code == ErrorCode.INTERNAL
    assert (failure.reason is Reason.INTERNAL) == is_bug
    assert failure.status >= 400


def test_a_full_queue_says_when_to_come_again():
    failure = refusal_of(frame("queue_full", retry_after_ms=1500))
    assert (failure.status, failure.retry_after_s) == (429, 1.5)


def test_a_backend_that_is_not_ready_says_when_to_come_again():
    failure = refusal_of(frame("backend_unavailable", "backend not ready"))
    assert (failure.status, failure.retry_after_s) == (503, 1.0)
    told = refusal_of(frame("backend_unavailable", retry_after_ms=9000))
    assert told.retry_after_s == 9.0


def test_an_overflow_has_the_numbers():
    failure = refusal_of(
        frame("invalid_request", prompt_tokens=900, n_ctx=512, tokens_over=389)
    )
    assert failure.reason is Reason.CONTEXT_OVERFLOW
    assert all(number in str(failure) for number in ("900", "512", "389"))
    assert "counting one for the answer" in str(failure)


def test_a_text_to_embed_or_to_rank_that_does_not_fit_is_an_overflow():
    text = "input[0] has 902 tokens, the context 512"
    failure = refusal_of(frame("invalid_request", f"invalid request: {text}"))
    assert (failure.reason, failure.param) == (Reason.CONTEXT_OVERFLOW, "input")
    assert str(failure) == text


def test_fields_have_the_names_of_the_api():
    names = {"messages": "input", "max_tokens": "max_output_tokens"}
    overflow = frame("invalid_request", prompt_tokens=900, n_ctx=512)
    assert (refusal_of(overflow, names).param, refusal_of(overflow).param) == (
        "input",
        "messages",
    )
    bound = frame("invalid_request", "invalid request: max_tokens 0 is too small")
    assert refusal_of(bound, names).param == "max_output_tokens"
    assert str(refusal_of(bound, names)) == "max_output_tokens 0 is too small"
    assert refusal_of(bound, {"messages": "input"}).param == "max_tokens"


def test_reasoning_that_a_model_has_not_is_a_field_at_fault_and_no_missing_model():
    plain = ScriptedBackend(name="chat", capabilities=BackendCapabilities())
    with pytest.raises(ModelNotFoundError) as caught:
        route([plain], [HAS_REASONING], "chat")
    refused = frame(caught.value.code, str(caught.value), models=[])
    failure = refusal_of(refused, {"thinking": "reasoning_effort"})
    assert (failure.reason, failure.status) == (Reason.UNSUPPORTED, 400)
    assert failure.param == "reasoning_effort"


@pytest.mark.parametrize("needed", [TAKES_IMAGES, TAKES_AUDIO, HANDLES_AUDIO])
def test_media_that_a_model_does_not_take_are_refused_with_its_name(needed):
    plain = ScriptedBackend(name="chat", capabilities=BackendCapabilities())
    with pytest.raises(ModelNotFoundError) as caught:
        route([plain], [needed], "chat")
    refused = frame(caught.value.code, str(caught.value), models=[])
    failure = refusal_of(refused, {"messages": "input"})
    assert (failure.reason, failure.status) == (Reason.UNSUPPORTED, 400)
    assert failure.param == "input"
    assert '"chat"' in str(failure)


def test_a_model_that_takes_no_sound_is_at_fault_where_all_requests_have_sound():
    refused = frame(
        "model_not_found", 'model "chat" has no support for audio attachments; no'
    )
    failure = refusal_of(refused, {"messages": "prompt", "audio attachments": "model"})
    assert (failure.reason, failure.param) == (Reason.MODEL_NOT_FOUND, "model")


def test_a_field_at_fault_is_named_only_if_it_is_one():
    named = refusal_of(
        frame("invalid_request", "invalid request: top_p 2 not in (0, 1]")
    )
    assert (named.param, str(named)) == ("top_p", "top_p 2 not in (0, 1]")
    assert refusal_of(frame("invalid_request", "nothing fits")).param is None


def test_no_path_of_this_machine_is_told():
    for error in (NoDaemonError("/run/inferd/x"), OSError(2, "no", "/run/inferd/x")):
        failure = failure_of(error)
        assert failure.status == 503
        assert "/run" not in str(failure)
    assert failure_of(ConnectionLostError("x")).status == 503
    assert failure_of(ProtocolError("x")).status == 500
