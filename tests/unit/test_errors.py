import inspect
import re

import pytest

from inferd import errors
from inferd.errors import (
    AttachmentsTooLargeError,
    AttachmentUnsupportedError,
    BackendNotReadyError,
    BackendUnavailableError,
    CancelledError,
    ContextOverflowError,
    DeadlineExceededError,
    DrainingError,
    EmbedError,
    EmbedUnsupportedError,
    ErrorCode,
    FrameTooLargeError,
    GenerateError,
    InferdError,
    InternalError,
    InvalidFrameError,
    InvalidRequestError,
    ModelNotFoundError,
    NotStartedError,
    PermissionDeniedError,
    QueueFullError,
    RerankUnsupportedError,
    TooManyConnectionsError,
    UnservedError,
)
from tests.cases import each_case

UNIONS = (GenerateError, EmbedError)
TREE = {
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, InferdError) and each not in UNIONS
}


@each_case(
    ("error", "code", "message"),
    [
        (InvalidFrameError("x"), "invalid_request", "decode: x"),
        (FrameTooLargeError("x"), "frame_too_large", "x"),
        (InvalidRequestError("x"), "invalid_request", "invalid request: x"),
        (QueueFullError(depth=3), "queue_full", "queue full"),
        (TooManyConnectionsError(), "queue_full", "too many connections"),
        (BackendUnavailableError("x"), "backend_unavailable", "x"),
        (BackendNotReadyError(), "backend_unavailable", "backend not ready"),
        (BackendNotReadyError("x"), "backend_unavailable", "backend not ready: x"),
        (
            DrainingError(),
            "backend_unavailable",
            "admission closed: the daemon is draining",
        ),
        (UnservedError("s"), "backend_unavailable", "no backend serves s"),
        (
            NotStartedError("x"),
            "backend_unavailable",
            "the daemon did not start: x",
        ),
        (InternalError("x"), "internal", "x"),
        (
            EmbedUnsupportedError(),
            "embed_unsupported",
            "embed not supported by this backend",
        ),
        (
            RerankUnsupportedError(),
            "rerank_unsupported",
            "rerank not supported by this backend",
        ),
        (AttachmentsTooLargeError("x"), "frame_too_large", "x"),
        (AttachmentUnsupportedError("x"), "attachment_unsupported", "x"),
        (
            DeadlineExceededError(50),
            "deadline_exceeded",
            "no answer began within 50 ms",
        ),
        (
            ModelNotFoundError("x", "is not served here", ["a", "b"]),
            "model_not_found",
            'model "x" is not served here; names that can do this: a, b',
        ),
        (
            ModelNotFoundError("x", "is not served here", []),
            "model_not_found",
            'model "x" is not served here; no model here can do this',
        ),
        (PermissionDeniedError(7, "x"), "permission_denied", "uid 7 may not use x"),
        (CancelledError(), "cancelled", "the request was cancelled"),
    ],
)
def test_a_failure_has_a_code_and_a_sentence(error, code, message):
    assert (error.code, error.message) == (code, message)


def test_an_overflow_says_how_many_tokens_to_drop():
    error = ContextOverflowError(prompt_tokens=8, n_ctx=8)
    assert (error.prompt_tokens, error.n_ctx, error.tokens_over) == (8, 8, 1)
    assert error.code == "invalid_request"
    assert error.message == (
        "invalid request: the prompt has 8 tokens and the context 8: "
        "1 too many, counting one for the answer"
    )


def test_an_overflow_that_was_not_counted_to_its_end_says_the_least_that_it_may_be():
    error = ContextOverflowError(prompt_tokens=20, n_ctx=8, at_least=True)
    assert (error.tokens_over, error.at_least) == (13, True)
    assert error.message == (
        "invalid request: the prompt has at least 20 tokens and the context 8: "
        "at least 13 too many, counting one for the answer"
    )


def test_these_end_the_connection_and_no_others():
    closing = {each for each in TREE if each.closes_connection}
    assert closing == {
        *(InvalidFrameError, FrameTooLargeError),
        *(DrainingError, TooManyConnectionsError, UnservedError),
        *(NotStartedError, PermissionDeniedError),
    }


def test_trying_again_helps_when_the_daemon_is_the_reason():
    retryable = {each for each in TREE if each.retryable and hasattr(each, "code")}
    assert {each.code for each in retryable} == {"queue_full", "backend_unavailable"}
    assert not {
        each for each in TREE - retryable if issubclass(each, retryable_kinds())
    }


def retryable_kinds():
    return QueueFullError, TooManyConnectionsError, BackendUnavailableError


def test_every_code_of_the_wire_has_a_failure():
    assert {each.code for each in TREE if hasattr(each, "code")} == set(ErrorCode)


def test_the_tree_is_as_documented():
    parents: list[str] = []
    documented: dict[str, str] = {}
    for indent, names in re.findall(
        r"^( *)- ((?:``\w+``(?:, )?)+)", errors.__doc__ or "", re.MULTILINE
    ):
        del parents[len(indent) // 4 :]
        parent = parents[-1] if parents else "Exception"
        documented |= dict.fromkeys(re.findall(r"\w+", names), parent)
        parents += re.findall(r"\w+", names)[:1]
    assert documented == {each.__name__: parent_of(each) for each in TREE}


def parent_of(error: type[InferdError]) -> str:
    bases = [each for each in error.__bases__ if each not in UNIONS]
    return (bases or [InferdError])[0].__name__


@pytest.mark.parametrize("union", UNIONS)
def test_what_a_backend_raises_is_told_from_what_admission_raises(union):
    raised = {each for each in TREE if issubclass(each, union)}
    assert {InvalidRequestError, BackendUnavailableError, InternalError} < raised
    assert QueueFullError not in raised
