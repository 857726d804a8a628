"""A surface that the product does not have: its messages, resolver, service and daemon.

All that a daemon needs of it is ``ECHO``, one more binding.
"""

import sys
from pathlib import Path
from typing import Any, Final

from inferd.app import run_daemon
from inferd.backend.events import Token
from inferd.backend.interface import Backend, Prepared
from inferd.backend.job import GenerateJob
from inferd.cli.commands.serve import config_reader, locate_models
from inferd.errors import InvalidRequestError
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.v1 import resolve_v1
from inferd.server.connection.response_writer import ResponseWriter
from inferd.server.request_context import RequestStats
from inferd.server.services.encode import EncodeService
from inferd.server.services.endpoints import BINDINGS, AnyBinding, Binding, surfaces_of
from inferd.server.services.pipeline import Pipeline
from inferd.surfaces import Surface
from inferd.wire.codec import request_decoder
from inferd.wire.requests import ChatMessage, GenerateRequest, Request
from inferd.wire.responses import TerminalFrame

SOCKET: Final = "infer.echo.sock"
SERVE_WITH_ECHO: Final = (sys.executable, "-m", "tests.fakes.echo")
"""The command line of a daemon with the surface; the configuration file follows."""


class EchoRequest(Request, frozen=True, kw_only=True):
    """What a client says."""

    id: str = ""
    text: str

    def counts(self) -> dict[str, int]:
        return {"n_chars": len(self.text)}


class EchoFrame(TerminalFrame, frozen=True, kw_only=True, tag="echo", tag_field="type"):
    """The same, and the answer of the model."""

    text: str
    answer: str
    backend: str


def resolve_echo(request: EchoRequest) -> ResolvedRequest[GenerateJob]:
    """Refuse to echo nothing."""
    if not request.text:
        raise InvalidRequestError("text must not be empty")
    messages = [ChatMessage(role="user", content=request.text)]
    return resolve_v1(GenerateRequest(id=request.id, messages=messages), seed=1)


async def _echo(
    request: EchoRequest,
    backend: Backend,
    prepared: Prepared[GenerateJob],
    reply: ResponseWriter,
) -> RequestStats:
    async with backend.generate(prepared) as stream:
        events = [event async for batch in stream for event in batch]
    tokens = [event.text for event in events if isinstance(event, Token)]
    answer = "".join(tokens)
    reply.put(
        [
            EchoFrame(
                id=request.id, text=request.text, answer=answer, backend=backend.name
            )
        ]
    )
    return {"n_answer_chars": len(answer)}


def echo_service(pipeline: Pipeline) -> EncodeService[EchoRequest, GenerateJob]:
    """Make the service."""
    return EncodeService(pipeline, resolve_echo, _echo)


ECHO: Final = Binding(
    surface=Surface(
        name="echo",
        socket=SOCKET,
        title="what was said",
        wire_version="echo",
        example="echo hello",
    ),
    is_served_by=lambda caps: caps.generate,
    decode=request_decoder(EchoRequest),
    service=echo_service,
)
WITH_ECHO: Final[tuple[AnyBinding, ...]] = (*BINDINGS, ECHO)
SURFACES: Final = surfaces_of(WITH_ECHO)


def echo_fields(text: str = "hello", request_id: str = "r") -> dict[str, Any]:
    """Make a request."""
    return {"id": request_id, "text": text}


def main(file: str) -> int:
    """Serve as ``inferd serve`` does, with one more surface."""
    read_config = config_reader(Path(file), None)
    config = read_config()
    has_served = run_daemon(
        config, locate_models(config), {}, read_config, bindings=WITH_ECHO
    )
    return 0 if has_served else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
