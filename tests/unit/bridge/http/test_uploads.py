"""Forms with recordings, through the application on virtual time."""

import json
from functools import partial

import pytest
import trio

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.limits.bridge import AUDIO_S
from tests.fakes.heard import ended, segment
from tests.unit.bridge.http.test_app import SETTINGS, Browser, ScriptedDaemon

TRANSCRIPTIONS, INFERENCE = "/v1/audio/transcriptions", "/inference"
FORM = {"content-type": "multipart/form-data; boundary=b0"}
HEARD = (segment(0, 2000, " Guten Tag."), segment(2000, 4000, " Auch."), ended())


def form(file: bytes = b"sound", **fields: str) -> bytes:
    parts = [
        f'--b0\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
        for name, text in fields.items()
    ]
    head = b'--b0\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    return b"".join([*map(str.encode, parts), head, file, b"\r\n--b0--\r\n"])


@pytest.fixture
def heard(tmp_path) -> Browser:
    return Browser(tmp_path, ScriptedDaemon(*HEARD))


async def test_an_answer_is_whole_a_text_or_streamed(heard, autojump_clock):
    send = partial(heard.send, "POST", TRANSCRIPTIONS, headers=FORM)
    whole = await send(form())
    assert (whole.status, json.loads(whole.body)["text"]) == (200, "Guten Tag. Auch.")
    text = await send(form(response_format="text"))
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.body == b"Guten Tag. Auch.\n"
    streamed = await send(form(stream="true"))
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert [at for at, _ in streamed.parts] == [0, 0, 0, 0]
    assert b"transcript.text.done" in streamed.body


async def test_a_recording_is_bounded_in_bytes_and_seconds_of_its_own(
    heard, autojump_clock
):
    send = partial(heard.send, "POST", TRANSCRIPTIONS, headers=FORM)
    fits = await send(form(b"x" * 1500))  # over ``max_body_bytes``
    assert (fits.status, "connection" in fits.headers) == (200, False)
    large = await send(form(b"x" * SETTINGS.max_audio_bytes))
    assert (large.status, large.error["code"]) == (413, "request_too_large")
    assert large.headers["connection"] == "close"  # the rest would be read as a request
    assert (await send(form(), body_takes_s=AUDIO_S - 1)).status == 200
    slow = await send(form(), body_takes_s=AUDIO_S + 1)
    assert (slow.status, slow.error["code"]) == (408, "request_timeout")


@pytest.mark.parametrize(
    ("body", "headers", "param"),
    [
        (b"{}", {"content-type": "application/json"}, None),
        (b"{}", {}, None),
        (form()[:-9], FORM, None),
        (form(volume="3"), FORM, "volume"),
        (form(temperature="warm"), FORM, "temperature"),
        (form(b""), FORM, "file"),
    ],
)
async def test_what_is_refused_is_told_in_the_form_of_the_api(
    heard, autojump_clock, body, headers, param
):
    openai = await heard.send("POST", TRANSCRIPTIONS, body, headers=headers)
    assert (openai.status, openai.error["param"]) == (400, param)
    whisper = await heard.send("POST", INFERENCE, body, headers=headers)
    assert (whisper.status, whisper.error) == (400, openai.error["message"])


async def test_failures_of_the_daemon_have_the_form_of_the_api(
    tmp_path, autojump_clock
):
    full = BridgeError(Reason.QUEUE_FULL, "later", retry_after_s=2)
    browser = Browser(tmp_path, ScriptedDaemon(full))
    answer = await browser.send("POST", INFERENCE, form(), headers=FORM)
    assert (answer.status, answer.error) == (429, "later")
    assert answer.headers["retry-after"] == "2"


async def test_a_client_that_hangs_up_ends_its_transcription_at_once(
    tmp_path, autojump_clock
):
    daemon = ScriptedDaemon(segment(0, 2000, " Guten"), 1000.0, ended())
    await Browser(tmp_path, daemon).send(
        "POST", TRANSCRIPTIONS, form(), headers=FORM, hangs_up_at=3
    )
    assert daemon.ended_at == 3


async def test_a_recording_counts_its_seconds_also_where_it_is_cut(
    tmp_path, autojump_clock
):
    daemon = ScriptedDaemon(segment(0, 2000, " Guten"), 1000.0, ended())
    browser = Browser(tmp_path, daemon)
    key = {"authorization": f"Bearer {browser.token(quota=101)}", **FORM}
    send = partial(browser.send, "POST", TRANSCRIPTIONS, form(), headers=key)
    await send(hangs_up_at=3)  # 100 tokens of sound, and a segment
    await trio.sleep(1)
    refused = await send()
    assert (refused.status, refused.error["code"]) == (429, "insufficient_quota")
