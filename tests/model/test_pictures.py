"""Pictures and sound in prompts, through a real daemon and libmtmd."""

import base64
from collections.abc import Iterator

import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, Frame, llamacpp, to_line
from tests.model.sound import sealed, tone
from tests.model.tiny_projector import write_tiny_projector

pytestmark = [pytest.mark.model, pytest.mark.slow]

V2 = "infer.v2.sock"
SIDE = 28
RED, BLUE = (bytes(colour) * SIDE * SIDE for colour in ((220, 30, 20), (20, 30, 220)))


@pytest.fixture(scope="module")
def daemon(tiny_f32, tmp_path_factory) -> Iterator[DaemonProcess]:
    mmproj = tmp_path_factory.mktemp("projector") / "mmproj.gguf"
    write_tiny_projector(mmproj, sees=True, hears=True)
    with daemons() as make:
        yield make({"backend": [llamacpp(tiny_f32, mmproj=str(mmproj))]}).start()


def image(name: str, pixels: bytes) -> Frame:
    data = base64.b64encode(pixels).decode()
    return {"kind": "image", "id": name, "width": SIDE, "height": SIDE, "bytes": data}


def asking(*attachments: Frame, text: str = "What is this?", **fields: object) -> Frame:
    shown = [
        {"type": each["kind"], "attachment_id": each["id"]} for each in attachments
    ]
    content = [*shown, {"type": "text", "text": text}]
    messages = [{"role": "user", "content": content}]
    options = {"temperature": 0, "seed": 0, "max_tokens": 24, "id": "p"}
    return {"messages": messages, "attachments": list(attachments), **options, **fields}


def ask(daemon: DaemonProcess, request: Frame) -> tuple[str, Frame]:
    with daemon.connect(V2) as client:
        *frames, last = client.ask(request)
    return "".join(each["block"]["delta"] for each in frames), last


def test_a_picture_changes_the_answer(daemon):
    answers = {
        ask(daemon, asking(*shown, cache="off"))[0]
        for shown in ((), (image("a", RED),), (image("a", BLUE),))
    }
    assert len(answers) == 3


def test_the_order_of_pictures_matters(daemon):
    red, blue = image("r", RED), image("b", BLUE)
    assert ask(daemon, asking(red, blue))[0] != ask(daemon, asking(blue, red))[0]


def test_a_picture_is_counted_in_the_prompt(daemon):
    without, one, two = (
        ask(daemon, asking(*shown))[1]["usage"]["input_tokens"]
        for shown in ((), (image("a", RED),), (image("a", RED), image("b", BLUE)))
    )
    assert without < one < two
    assert two - one == one - without


def test_a_second_question_about_a_picture_is_served_from_the_cache(daemon):
    green = bytes((20, 200, 40)) * SIDE * SIDE
    first = ask(daemon, asking(image("a", green)))[1]
    second = ask(daemon, asking(image("b", green), text="What else is there?"))[1]
    assert first["usage"]["cached_tokens"] < first["usage"]["input_tokens"] / 2
    assert second["usage"]["cached_tokens"] >= 4  # the picture, and what stands before
    assert "cache_miss" not in second


def test_a_descriptor_does_what_base64_does(daemon):
    plain = ask(daemon, asking(image("a", RED), cache="off"))[0]
    by_fd = {"kind": "image", "id": "a", "width": SIDE, "height": SIDE, "fd": 0}
    with daemon.connect(V2) as client:
        client.hand_over(to_line(asking(by_fd, cache="off")), [sealed(RED)])
        *frames, _ = client.frames()
    assert "".join(each["block"]["delta"] for each in frames) == plain


def test_sound_changes_the_answer_too(daemon):
    def heard(data: bytes) -> Frame:
        text = base64.b64encode(data).decode()
        return {"kind": "audio", "id": "s", "sample_rate": 16_000, "bytes": text}

    answers = {ask(daemon, asking(heard(tone(s, level=0.9))))[0] for s in (1, 2)}
    assert len(answers | {ask(daemon, asking())[0]}) >= 2


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (asking(image("a", RED[:-3])), "invalid_request", "2352"),
        (asking(image("a", RED), language="en"), "invalid_request", "language"),
        (
            asking({"kind": "video", "id": "v", "bytes": ""}),
            "attachment_unsupported",
            "video",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused(daemon, request_, code, words):
    _, last = ask(daemon, request_)
    assert (last["type"], last["id"], last["code"]) == ("error", "p", code)
    assert words in last["message"]


def test_a_model_without_a_projector_takes_no_pictures(tiny_daemon):
    _, last = ask(tiny_daemon, asking(image("a", RED)))
    assert last["code"] == "attachment_unsupported"


def test_capabilities_tell_what_the_projector_can(daemon):
    with daemon.admin() as listener:
        [able] = [
            each for each in listener.until("ready") if each["status"] == "capabilities"
        ]
    assert (able["vision"], able["audio"], able["audio_sample_rate"]) == (
        True,
        True,
        16_000,
    )
