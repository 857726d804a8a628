from pathlib import Path

import msgspec

from inferd.cli.chat.faults import advice_for
from inferd.client.core.failures import (
    ClientError,
    ConnectionLostError,
    NoDaemonError,
    UntrustedServerError,
    failure_of,
)
from inferd.client.frames import ClientErrorFrame
from tests.cases import each_case


def failed(code: str, **fields: object) -> ClientError:
    frame = {"id": "1", "type": "error", "code": code, "message": "m", **fields}
    return failure_of(msgspec.convert(frame, ClientErrorFrame))


@each_case(
    ("error", "advice"),
    [
        (failed("queue_full", retry_after_ms=2500), "asks again, best in 2 s"),
        (failed("queue_full"), "/regenerate asks again"),
        (
            failed("invalid_request", tokens_over=3, n_ctx=9, prompt_tokens=12),
            "/context",
        ),
        (failed("model_not_found", models=["b"]), "/model b"),
        (failed("model_not_found"), "inferd model list"),
        (failed("attachment_unsupported"), "/model lists"),
        (failed("internal"), "/regenerate asks again"),
        (NoDaemonError("gone"), "inferd serve; then /regenerate"),
        (ConnectionLostError("gone"), "/regenerate asks again"),
        (UntrustedServerError(Path("/x"), 7, "who"), ""),
        (ValueError("x"), ""),
    ],
)
def test_a_failure_has_its_advice(error, advice):
    assert advice in advice_for(error) if advice else advice_for(error) == ""
