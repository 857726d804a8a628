"""What other programs send, as their sources have it: every field of it is taken."""

import json
from typing import Any

from inferd.bridge.apis import APIS
from inferd.bridge.http.guard import credential_of
from inferd.bridge.translation.api import Operation
from inferd.bridge.translation.question import Asked, Question
from inferd.wire.blocks import BlocksRequest
from tests.cases import each_case

ASKED = Asked(request_id="req_1", created_s=7, default_max_tokens=99)
TALK = [
    {"role": "system", "content": "You are in an editor."},
    {"role": "user", "content": [{"type": "text", "text": "What does this do?"}]},
    {"role": "assistant", "content": "It adds.", "tool_calls": None},
    {"role": "user", "content": "Test it."},
]
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file.",
        "parameters": {
            "type": "object",
            "required": ["path"],
            "properties": {"path": {"type": "string"}},
        },
    },
}
CALLED = [
    *TALK,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "call_1",
                "index": 0,
                "type": "function",
                "function": {"name": "read_file", "arguments": '{"path": "a.py"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "def f(): ..."},
]
CONTINUE: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/chat/completions",
        {
            "model": "chat",
            "messages": TALK,
            "max_tokens": 4096,
            "temperature": 0.5,
            "stop": ["\n\n"],
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    (
        "/v1/chat/completions",
        {
            "model": "chat",
            "messages": CALLED,
            "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "read_file"}},
            "parallel_tool_calls": False,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    (
        "/v1/embeddings",
        {"model": "embed", "input": ["a", "b"], "encoding_format": "base64"},
    ),
    ("/rerank", {"model": "rank", "query": "q", "documents": ["a"]}),
]
OPEN_WEBUI: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/chat/completions",
        {
            "stream": True,
            "model": "chat",
            "messages": CALLED,
            "stream_options": {"include_usage": True},
            "tools": [TOOL],
            "temperature": 0.7,
            "top_p": 0.9,
            "min_p": 0.05,
            "max_tokens": 512,
            "frequency_penalty": 0.1,
            "presence_penalty": 0.1,
            "seed": 1,
            "stop": ["END"],
            "logit_bias": {"5": -100},
            "response_format": {"type": "json_object"},
            "top_k": 40,
            "repeat_penalty": 1.1,
        },
    ),
    (
        "/v1/chat/completions",
        {  # a title, of which it asks for no stream
            "model": "chat",
            "messages": TALK,
            "stream": False,
            "max_tokens": 1000,
        },
    ),
    ("/v1/embeddings", {"input": ["a", "b"], "model": "embed"}),
    (
        "/v1/rerank",
        {"model": "rank", "query": "q", "documents": ["a", "b"], "top_n": 2},
    ),
]


def ask(path: str, fields: dict[str, Any]) -> Question:
    [operation] = [
        each
        for api in APIS
        for each in api.operations
        if path in (each.path, *each.also)
    ]
    assert isinstance(operation, Operation)
    return operation.ask(json.dumps(fields).encode(), ASKED)


@each_case(("path", "fields"), [*CONTINUE, *OPEN_WEBUI])
def test_each_request_is_taken(path, fields):
    question = ask(path, fields)
    assert question.request.model == fields["model"]
    assert question.is_streamed == fields.get("stream", False)
    if isinstance(question.request, BlocksRequest):
        assert len(question.request.conversation) == len(fields["messages"])
        assert len(question.request.tools) == len(fields.get("tools", []))


def test_a_program_without_a_key_has_none():
    """Continue sends two headers, and the word of its language for nothing."""
    headers = [(b"x-api-key", b""), (b"authorization", b"Bearer undefined")]
    assert credential_of(headers) == "undefined"  # no token: the user is asked of
    assert credential_of([(b"authorization", b"Bearer")]) == ""
