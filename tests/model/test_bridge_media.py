"""Pictures and sound that clients of the bridge send as files, in front of a real model."""

import base64
import io
import wave
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from PIL import Image

from tests.daemon.bridge import BridgeProcess, bridge_to
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, llamacpp
from tests.model.sound import RATE, text64
from tests.model.test_pictures import BLUE, RED, SIDE, ask, asking, image
from tests.model.tiny_projector import write_tiny_projector

pytestmark = [pytest.mark.slow, pytest.mark.model]

WHAT = "What is this?"
FIXED: dict[str, Any] = {"temperature": 0, "seed": 0, "max_tokens": 24}


@pytest.fixture(scope="module")
def daemon(tiny_f32, tmp_path_factory) -> Iterator[DaemonProcess]:
    """A daemon with a model that sees and hears, and one that does neither."""
    mmproj = tmp_path_factory.mktemp("projector") / "mmproj.gguf"
    write_tiny_projector(mmproj, sees=True, hears=True)
    sees = llamacpp(tiny_f32, mmproj=str(mmproj), name="sees")
    with daemons() as make:
        blind = llamacpp(tiny_f32, name="blind")
        yield make({"backend": [sees, blind]}).start()


@pytest.fixture(scope="module")
def bridge(daemon) -> Iterator[BridgeProcess]:
    """A bridge to it."""
    with bridge_to(daemon) as made:
        yield made


@pytest.fixture(scope="module")
def client(bridge) -> Iterator[openai.OpenAI]:
    """OpenAI's client."""
    with bridge.client() as made:
        yield made


@pytest.fixture(scope="module")
def claude(bridge) -> Iterator[anthropic.Anthropic]:
    """Anthropic's client."""
    with anthropic.Anthropic(
        base_url=bridge.address, api_key="none", max_retries=0
    ) as made:
        yield made


def file_of(pixels: bytes, kind: str = "PNG") -> str:
    """Write pixels as a file that loses nothing, in base64."""
    file = io.BytesIO()
    made = Image.frombytes("RGB", (SIDE, SIDE), pixels)
    made.save(file, kind, lossless=True)
    return base64.b64encode(file.getvalue()).decode()


def shown(pixels: bytes) -> dict[str, Any]:
    url = f"data:image/png;base64,{file_of(pixels)}"
    return {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}


def source(pixels: bytes) -> dict[str, Any]:
    data = file_of(pixels, "WEBP")
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/webp", "data": data},
    }


def chat(client: openai.OpenAI, *parts: Any, **fields: Any) -> str:
    content: Any = [*parts, {"type": "text", "text": WHAT}]
    found = client.chat.completions.create(
        messages=[{"role": "user", "content": content}],
        **{"model": "sees", **FIXED, **fields},
    )
    text: str | None = found.choices[0].message.content
    assert text is not None
    return text


def test_a_file_is_answered_as_its_pixels_are(client, daemon):
    for pixels in (RED, BLUE):
        direct, _ = ask(daemon, asking(image("a", pixels)))
        assert chat(client, shown(pixels)) == direct != ""
    direct, _ = ask(daemon, asking(image("a", RED), image("b", BLUE)))
    assert chat(client, shown(RED), shown(BLUE)) == direct


def test_a_recording_is_answered_as_its_samples_are(client, daemon):
    file = io.BytesIO()
    samples = bytes(2 * RATE)
    with wave.open(file, "wb") as made:
        made.setparams((1, 2, RATE, 0, "NONE", ""))
        made.writeframes(samples)
    heard = {
        "type": "input_audio",
        "input_audio": {"data": text64(file.getvalue()), "format": "wav"},
    }
    sound = {
        "kind": "audio",
        "id": "a",
        "sample_rate": RATE,
        "bytes": text64(2 * samples),
    }
    direct, _ = ask(daemon, asking(sound, model="sees"))
    assert chat(client, heard) == direct != ""


def test_a_response_sees_what_a_chat_does(client, daemon):
    url = f"data:image/png;base64,{file_of(BLUE)}"
    seen: Any = [
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_text", "text": WHAT},
    ]
    found = client.responses.create(
        model="sees",
        input=[{"role": "user", "content": seen}],
        temperature=0,
        max_output_tokens=24,
    )
    direct, _ = ask(daemon, asking(image("a", BLUE)))
    assert found.output_text == direct


def test_messages_see_pictures_in_turns_and_in_results_of_tools(claude):
    def answer(*content: Any) -> tuple[str, int]:
        talk: Any = [
            {"role": "user", "content": [*content, {"type": "text", "text": WHAT}]}
        ]
        found = claude.messages.create(
            model="sees",
            max_tokens=24,
            messages=talk,
            extra_body={"temperature": 0},
        )
        counted = claude.messages.count_tokens(model="sees", messages=talk)
        return found.content[0].text, counted.input_tokens

    def result(*content: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": "t", "content": [*content]}

    red, blue = answer(source(RED)), answer(source(BLUE))
    assert red[0] != blue[0]
    assert red[1] == blue[1] > answer()[1]
    seen = [answer(result(source(pixels)))[0] for pixels in (RED, BLUE)]
    assert seen[0] != seen[1]


def test_a_model_that_sees_nothing_refuses_pictures_by_its_name(client, claude):
    with pytest.raises(openai.BadRequestError, match='"blind"') as refused:
        chat(client, shown(RED), model="blind")
    assert refused.value.param == "messages"
    with pytest.raises(anthropic.BadRequestError, match="blind"):
        claude.messages.create(
            model="blind",
            max_tokens=1,
            messages=[{"role": "user", "content": [source(RED)]}],
        )


def test_a_file_that_is_no_picture_is_refused_with_its_place(client):
    url = f"data:image/png;base64,{text64(b'no picture')}"
    broken = {"type": "image_url", "image_url": {"url": url}}
    with pytest.raises(openai.BadRequestError, match="cannot be decoded") as refused:
        chat(client, shown(RED), broken)
    assert refused.value.param == "messages[0].content[1].image_url.url"


def test_the_address_of_a_picture_is_refused_and_nothing_fetched(client):
    there = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/a.png"}}
    with pytest.raises(openai.BadRequestError, match="fetches nothing"):
        chat(client, there)


def test_decoders_are_confined_and_the_log_says_so(bridge, client):
    chat(client, shown(RED))
    [line] = bridge.logged("media_decoder.confined")
    assert line["level"] == "info"
    assert "missing" not in line
