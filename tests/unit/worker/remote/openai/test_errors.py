"""What servers say of errors.

Where the texts of overflows were found, in order: vllm#20409 and fast-agent#621 (OpenAI's own
wording), deer-flow#310, vLLM's sources (by hand: second form of it, and the decoder's), SGLang's
sources (by hand), llama-cpp-python's, Qwen3#1321, llama.cpp's sources, lmstudio-bug-tracker#546, openclaude#353;
the last is this project's own (``ContextOverflowError``). The form in numbers is that of
llama.cpp#15780.
"""

import json

import pytest
from msgspec import UNSET

from inferd.bridge.upstream.failures import failure_of
from inferd.client.core.failures import RequestFailedError
from inferd.client.frames import ClientErrorFrame
from inferd.config.kinds.remote_limits import MAX_REASON_CHARS
from inferd.ipc.worker import Overflow
from inferd.worker.remote.anthropic import errors as anthropic
from inferd.worker.remote.errors import retry_after_ms
from inferd.worker.remote.failure import NO_KEY, RemoteError, quote
from inferd.worker.remote.ollama import errors as ollama
from inferd.worker.remote.openai import errors as openai
from inferd.worker.remote.openai.errors import error_in_answer, error_of_status
from inferd.worker.remote.overflow import find_overflow
from tests.cases import each_case

OVERFLOWS = [
    (
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 "
            "tokens (8000 in the messages, 1000 in the completion). Please reduce the length of "
            "the messages or completion."
        ),
        (8000, 1000, 8192),
    ),
    (
        (
            "This model's maximum context length is 16385 tokens. However, your messages "
            "resulted in 16400 tokens. Please reduce the length of the messages."
        ),
        (16400, 1, 16385),
    ),
    (
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 512. This model's maximum "
            "context length is 2048 tokens and your request has 2100 input tokens"
        ),
        (2100, 1, 2048),
    ),
    (
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096. "
            "Make sure that `max_model_len` is no smaller than the number of text tokens."
        ),
        (5000, 1, 4096),
    ),
    (
        (
            "Requested token count exceeds the model's maximum context length of 4096 tokens. "
            "You requested a total of 5000 tokens: 4000 tokens from the input messages and 1000 "
            "tokens for the completion."
        ),
        (4000, 1000, 4096),
    ),
    (
        (
            "The input (5000 tokens) is longer than the model's context length (4096 tokens)."
        ),
        (5000, 1, 4096),
    ),
    ("Requested tokens (4103) exceed context window of 2048", (4103, 1, 2048)),
    (
        (
            "request (6020 tokens) exceeds the available context size (4096 tokens), try "
            "increasing it"
        ),
        (6020, 1, 4096),
    ),
    (
        (
            "Trying to keep the first 4242 tokens when context the overflows. However, the model "
            "is loaded with context length of only 4096 tokens, which is not enough."
        ),
        (4242, 1, 4096),
    ),
    (
        (
            "The number of tokens to keep from the initial prompt is greater than the context "
            "length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context"
        ),
        (13055, 1, 4096),
    ),
    (
        (
            "invalid request: the prompt has 300 tokens and the context 256: 45 too many, "
            "counting one for the answer"
        ),
        (300, 1, 256),
    ),
]


def failure(status: int, error: object, **headers: str) -> RemoteError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps({"error": error}).encode()
    return error_of_status(status, named, body, 0.0)


@each_case(("text", "numbers"), OVERFLOWS)
def test_an_overflow_is_known_in_each_servers_words(text, numbers):
    prompt, answer, n_ctx = numbers
    expected = Overflow(prompt_tokens=prompt, answer_tokens=answer, n_ctx=n_ctx)
    assert failure(400, {"message": text}).overflow == expected
    assert error_in_answer(json.dumps({"error": text}).encode()).overflow == expected


@each_case("at_least", [UNSET, True])
def test_the_words_of_a_bridge_are_known_by_each_kind_that_asks_one(at_least):
    frame = ClientErrorFrame(
        id="r",
        code="invalid_request",
        message="too long",
        prompt_tokens=5000,
        n_ctx=4096,
        tokens_over=905,
        at_least=at_least,
    )
    text = str(failure_of(RequestFailedError(frame), {}))
    expected = Overflow(prompt_tokens=5000, answer_tokens=1, n_ctx=4096)
    for kind in (openai.OVERFLOWS, ollama.OVERFLOWS, anthropic.OVERFLOWS):
        assert find_overflow(text, kind) == expected


def test_an_overflow_in_numbers_needs_no_words():
    body = {"type": "exceed_context_size_error", "n_prompt_tokens": 60, "n_ctx": 40}
    found = failure(500, body).overflow
    assert found == Overflow(prompt_tokens=60, answer_tokens=1, n_ctx=40)


@pytest.mark.parametrize("numbers", [("9" * 20, "5"), ("5", "9" * 20), ("5", "0")])
def test_numbers_that_contradict_each_other_are_no_overflow(numbers):
    prompt, n_ctx = numbers
    text = f"The input ({prompt} tokens) is longer than the model's context length ({n_ctx} tokens)"
    error = failure(400, {"message": text})
    assert (error.overflow, error.by_request) == (None, True)


@each_case(
    ("status", "reason", "by_request", "counts"),
    [
        (307, "redirects", False, True),
        (400, "refuses it: no", True, False),
        (401, r"refuses the key \(HTTP 401\)$", False, True),
        (402, "quota", False, False),
        (403, r"refuses the key \(HTTP 403\)$", False, True),
        (404, "no such model or address as is configured: no", False, False),
        (429, "rate limit is reached$", False, False),
        (500, r"failed \(HTTP 500\): no", False, True),
        (503, r"failed \(HTTP 503\): no", False, True),
    ],
)
def test_a_status_says_whose_fault_it_is(status, reason, by_request, counts):
    error = failure(status, {"message": "no"})
    with pytest.raises(RemoteError, match=reason):
        raise error
    assert (error.by_request, error.counts) == (by_request, counts)


def test_a_quota_that_is_used_up_is_no_rate_limit():
    assert "quota" in str(failure(429, {"code": "insufficient_quota", "message": "no"}))


@each_case(
    ("headers", "expected"),
    [
        ({"retry-after": "3"}, 3000),
        ({"retry-after-ms": "250", "retry-after": "9"}, 250),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 50_000),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "9" * 400}, 86_400_000),
        ({"retry-after-ms": "nan"}, None),
        ({}, None),
    ],
)
def test_a_hint_to_wait_is_read_in_seconds_and_as_a_date(headers, expected):
    assert retry_after_ms(headers, 10.0) == expected


@each_case("body", [b"", b"<html>", b"{", b'{"error": 3}', b"[" * 9999])
def test_a_body_that_is_no_error_object_is_left_out(body):
    assert str(error_of_status(500, {}, body, 0.0)) == "the remote failed (HTTP 500)"


def test_what_a_remote_says_is_quoted_short_in_one_line_and_without_the_key():
    assert quote("a\n\x1b[31mb") == "a [31mb"
    error = error_of_status(500, {}, b'{"message": "bad sk-1 sk-1"}', 0.0)
    assert error.message(1, "sk-1").reason.endswith(f"bad {NO_KEY} {NO_KEY}")


def test_a_key_at_the_cut_of_a_long_reason_is_left_out_as_a_whole():
    key = "sk-" + "k" * 40
    for n_before in range(MAX_REASON_CHARS - 60, MAX_REASON_CHARS + 9):
        text = "x" * n_before + key
        reason = RemoteError(quote(text)).message(1, key).reason
        assert "sk-" not in reason
        assert len(reason) <= MAX_REASON_CHARS
