"""The answer to the prompt of a JSON line."""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from inferd.cli.batch.clients import JobClients
from inferd.cli.batch.lines import LineResult
from inferd.cli.console import CommandError
from inferd.cli.json_lines import JsonLine
from inferd.client.frames import ClientDoneFrame
from inferd.client.sync import FrameClient
from inferd.wire.requests import ChatMessage, GenerateRequest

_MESSAGES: Final = msgspec.json.Decoder(list[ChatMessage])
_TEXT: Final = msgspec.json.Decoder(str)
MakeRequest = Callable[[str], GenerateRequest]


def answer_prompt(
    make_request: MakeRequest, clients: JobClients, line: JsonLine
) -> LineResult:
    """Answer the prompt of a line.

    Raises:
        CommandError: it has none.
        ClientError: the daemon refused it, or its answer failed.
    """
    request = replace(_request_of(line, make_request), stream=False)

    def ask(client: FrameClient) -> ClientDoneFrame:
        *_, done = client.generate(request)
        assert isinstance(done, ClientDoneFrame)  # noqa: S101  # streams end with it
        return done

    done = clients.ask(ask)
    told = {
        "answer": done.content,
        "stop_reason": done.stop_reason,
        "usage": done.usage,
    }
    return LineResult(told, is_failure=done.stop_reason in ("cancelled", "error"))


def _request_of(line: JsonLine, make_request: MakeRequest) -> GenerateRequest:
    fields = line.fields
    try:
        if "messages" in fields:
            request = make_request("")
            messages = _MESSAGES.decode(fields["messages"])
            return replace(request, messages=[*request.messages[:-1], *messages])
        prompt = fields["prompt"] if "prompt" in fields else fields["text"]
        return make_request(_TEXT.decode(prompt))
    except (KeyError, msgspec.DecodeError) as error:
        raise CommandError(
            f'{line.origin}: neither a text nor an object with "prompt", "text" or '
            '"messages"'
        ) from error
