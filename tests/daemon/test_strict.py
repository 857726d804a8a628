"""Strict requests, from outside: short lines, and those that another process reads."""

import pytest

from tests.daemon.harness import DaemonProcess, blocks, generate

pytestmark = pytest.mark.slow

SENT = {
    "infer.sock": lambda text: generate(text, max_tokens=1),
    "infer.v2.sock": lambda text: blocks(text, max_tokens=1),
    "infer.embed.sock": lambda text: {"input": [text]},
    "infer.rerank.sock": lambda text: {"query": "q", "documents": [text]},
}


@pytest.mark.parametrize("leaf", SENT)
@pytest.mark.parametrize("n_bytes", [2, 40_000])
def test_an_unknown_field_of_a_strict_request_is_refused(
    shared_daemon: DaemonProcess, leaf, n_bytes
):
    request = {"id": "a", **SENT[leaf]("x" * n_bytes)}
    with shared_daemon.connect(leaf) as client:
        for strict in (True, False, None):
            frame = client.ask({**request, "strict": strict, "temprature": 1})[-1]
            assert (frame["type"] == "error") == (strict is True)
            if strict:
                assert (frame["id"], frame["code"]) == ("a", "invalid_request")
                assert frame["message"].startswith(
                    "invalid request: strict: no such field: temprature; "
                    "allowed beside temprature: "
                )
        assert client.ask({**request, "strict": True})[-1]["type"] != "error"
