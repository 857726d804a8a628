"""Media that no model takes are refused before they are decoded."""

import json
from typing import Any, cast

import pytest
import trio

from inferd.bridge.media.decoders import MediaDecoders
from inferd.bridge.openai.chat_request import ask_chat
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import Question
from inferd.bridge.upstream.daemon import DaemonClient
from inferd.bridge.upstream.media_check import refusal_of_media
from inferd.wire.offered_facts import OfferedFacts
from tests.cases import each_case
from tests.unit.bridge.upstream.test_daemon import ASKED, listening, says

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}


def question(*parts: Any, **fields: Any) -> Question:
    body = {"messages": [{"role": "user", "content": [*parts]}], **fields}
    return ask_chat(json.dumps(body).encode(), ASKED)


def facts(name: str, *aliases: str, **more: Any) -> OfferedFacts:
    return OfferedFacts(backend=name, aliases=[*aliases], state="ready", **more)


MODELS = [
    facts("text"),
    facts("eyes", "seer", vision=True),
    facts("ears", transcribe=True),
    facts("new", is_unread=True),
]


@each_case(
    ("parts", "model", "text"),
    [
        ((PICTURE,), "text", 'model "text" has no support for image attachments; '),
        ((PICTURE,), "gone", 'model "gone" is not served here; '),
        ((PICTURE, SOUND), "seer", '"seer" has no support for audio attachments; '),
        ((PICTURE,), "seer", ""),
        ((SOUND,), "ears", ""),
        ((PICTURE,), "new", ""),
        ((PICTURE, SOUND), None, ""),
        ((), "gone", ""),
    ],
)
def test_a_model_is_told_by_any_name_and_what_is_unknown_is_left_open(
    parts, model, text
):
    asked = question({"type": "text", "text": "hi"}, *parts, model=model)
    frame = refusal_of_media(asked, MODELS)
    assert (frame is None) == (not text)
    if frame is not None:
        able = "ears, new" if SOUND in parts else "eyes, seer, new"
        assert text in frame.message
        assert frame.message.endswith(f"names that can do this: {able}")


def test_where_no_model_takes_them_the_code_is_that_of_the_daemon():
    frame = refusal_of_media(question(SOUND), MODELS[:2])
    assert frame is not None
    assert (frame.code, frame.message) == (
        "attachment_unsupported",
        "no backend takes audio attachments",
    )


async def test_nothing_is_decoded_for_a_model_that_sees_nothing(short_dir):
    lines: list[Any] = []

    async def tell(stream: trio.SocketStream, line: dict[str, Any]) -> None:
        lines.append((line["type"], line.get("model")))
        unread: dict[str, Any] = {"backend": "new", "aliases": [], "state": "unloaded"}
        if line.get("model") is None:
            unread["is_unread"] = True
        await says({"type": "models", "id": line["id"], "models": [unread]})(stream, {})

    unused = cast("MediaDecoders", object())
    client = DaemonClient(short_dir, max_requests=1, decoders=unused)
    async with listening(short_dir, "infer.v2.sock", tell):
        with pytest.raises(BridgeError, match="no support for image") as caught:
            await anext(client.ask(question(PICTURE, model="new"), "ada"))
    assert (caught.value.reason, caught.value.param) == (Reason.UNSUPPORTED, "messages")
    assert lines == [("describe", None), ("describe", "new")]
