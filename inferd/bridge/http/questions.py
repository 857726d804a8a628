"""From the body of a request to the question that an API makes of it."""

import dataclasses
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

import trio

from inferd.bridge.http.exchange import HttpExchange
from inferd.bridge.http.form import FormParser
from inferd.bridge.http.guard import content_type
from inferd.bridge.translation.api import FormOperation, LiveOperation, Operation
from inferd.bridge.translation.question import (
    Asked,
    DaemonFrame,
    Question,
)
from inferd.bridge.upstream.live_sound import LiveSound
from inferd.config.bridge import BridgeSettings
from inferd.limits.bridge import (
    APPENDED_LINE_BYTES,
    SOUND_TOKENS_PER_S,
    THREADED_BODY_BYTES,
)
from inferd.wire.requests import VIA_HEADER
from inferd.wire.responses import ProgressFrame

_VIA_HEADER = VIA_HEADER.lower().encode()


async def read_question(
    operation: Operation | FormOperation,
    exchange: HttpExchange,
    settings: BridgeSettings,
) -> tuple[Question, int]:
    """Read a body and translate it.

    Returns:
        The question, and the most tokens that it may use.

    Raises:
        BridgeError: it is refused.
        HangUpError: the connection ended before it.
    """
    asked = Asked(
        request_id=exchange.request_id,
        created_s=int(time.time()),
        default_max_tokens=settings.default_max_tokens,
    )
    if isinstance(operation, FormOperation):
        return await _read_form(operation, exchange, settings, asked)
    if isinstance(operation, LiveOperation):
        return await _read_live(operation, exchange, settings, asked)
    body = await exchange.read_body()
    ask = partial(operation.ask, body, asked)
    is_large = len(body) >= THREADED_BODY_BYTES
    question = await trio.to_thread.run_sync(ask) if is_large else ask()
    question = question.passed_on_by(via_of(exchange))
    return question, len(body) + (getattr(question.request, "max_tokens", None) or 0)


async def _read_live(
    operation: LiveOperation,
    exchange: HttpExchange,
    settings: BridgeSettings,
    asked: Asked,
) -> tuple[Question, int]:
    """Read the line of a request and translate it; its sound follows."""
    line, rest = await exchange.read_line(APPENDED_LINE_BYTES)
    question = operation.ask(line, asked).passed_on_by(via_of(exchange))
    assert question.appended is not None  # noqa: S101  # of such an operation
    sound = LiveSound(question.appended, rest, settings.max_sound_s)
    most = math.ceil(settings.max_sound_s * SOUND_TOKENS_PER_S)
    return dataclasses.replace(question, sound=sound), most


async def _read_form(
    operation: FormOperation,
    exchange: HttpExchange,
    settings: BridgeSettings,
    asked: Asked,
) -> tuple[Question, int]:
    """Read a form and translate it; only its file, which is not looked at, may be large."""
    parser = FormParser(content_type(exchange.headers))
    await exchange.read_parts(
        parser.feed, max_bytes=settings.max_audio_bytes, limit_s=settings.audio_s
    )
    form = parser.end()
    longest = math.ceil(settings.max_sound_s * SOUND_TOKENS_PER_S)
    question = operation.ask(form, asked).passed_on_by(via_of(exchange))
    return question, min(len(form.file), longest)


def via_of(exchange: HttpExchange) -> list[str]:
    """Return the daemons that have passed a request on."""
    values = [value for name, value in exchange.headers if name == _VIA_HEADER]
    names = b",".join(values).decode("latin-1").split(",")
    return [stripped for each in names if (stripped := each.strip())]


async def lowering(
    batches: AsyncGenerator[Sequence[DaemonFrame], None],
    question: Question,
    lower: Callable[[int], None],
) -> AsyncGenerator[Sequence[DaemonFrame], None]:
    """Pass frames on; tell what the question may use once its prompt is counted.

    Until then it may be a token for each byte of the body, and a picture's are many.
    """
    n_answer = getattr(question.request, "max_tokens", None)
    async with aclosing(batches):
        async for frames in batches:
            for frame in frames:
                match frame:
                    case ProgressFrame(total=int(n_prompt)) if n_answer is not None:
                        lower(n_prompt + n_answer)
                    case _:
                        pass
            yield frames
