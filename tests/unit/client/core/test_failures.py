"""Each code of the protocol has an exception of its own, with what can be done."""

from typing import Any

import pytest

from inferd.client.core.failures import (
    BY_CODE,
    BackendUnavailable,
    ContextOverflow,
    InvalidRequest,
    ModelNotFound,
    QueueFull,
    RequestFailedError,
    UnreadError,
    failure_of,
)
from inferd.client.core.retries import MAX_PAUSE_S, Retries
from inferd.client.frames import ClientErrorFrame
from inferd.errors import ErrorCode


def failure(code: str, **fields: Any) -> RequestFailedError:
    return failure_of(ClientErrorFrame(id="1", code=code, message="m", **fields))


def test_every_code_has_a_class_of_its_own_and_a_later_one_the_base():
    classes = [type(failure(code)) for code in ErrorCode]
    assert len({*classes}) == len(ErrorCode) == len(BY_CODE)
    assert RequestFailedError not in classes
    assert type(failure("of_tomorrow")) is RequestFailedError


def test_a_failure_tells_what_can_be_done():
    full = failure("queue_full", retry_after_ms=1500, queue_depth=7)
    assert isinstance(full, QueueFull)
    assert (full.retry_after, full.queue_depth) == (1.5, 7)
    over = failure("invalid_request", tokens_over=3, prompt_tokens=10, n_ctx=8)
    assert isinstance(over, ContextOverflow)
    assert isinstance(over, InvalidRequest)
    assert (over.tokens_over, over.n_ctx, over.at_least) == (3, 8, False)
    unknown = failure("model_not_found", models=["a", "b"])
    assert isinstance(unknown, ModelNotFound)
    assert unknown.models == ["a", "b"]
    gone = failure("backend_unavailable")
    assert isinstance(gone, BackendUnavailable)
    assert gone.retry_after is None


def test_only_refusals_that_may_pass_are_retried_and_a_bounded_number():
    retries = Retries(2)
    assert retries.pause_after(failure("queue_full", retry_after_ms=250)) == 0.25
    assert retries.pause_after(failure("backend_unavailable")) == 1.0
    assert retries.pause_after(failure("queue_full")) is None
    for code in set(ErrorCode) - {ErrorCode.QUEUE_FULL, ErrorCode.BACKEND_UNAVAILABLE}:
        assert Retries(2).pause_after(failure(code)) is None, code
    later = failure("queue_full", retry_after_ms=int(MAX_PAUSE_S * 1000) + 1)
    assert Retries(2).pause_after(later) is None


def test_a_request_that_nobody_read_is_sent_once_more_even_without_retries():
    retries = Retries(0)
    assert retries.pause_after(UnreadError("x")) == 0
    assert retries.pause_after(UnreadError("x")) is None


def test_every_exception_is_one_that_a_program_catches():
    with pytest.raises(RequestFailedError, match="queue_full: m"):
        raise failure("queue_full")
