import base64
import os
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.events import Partial, Span, Text, Transcription
from inferd.backend.job import GenerateJob, TranscribeJob
from inferd.errors import BackendUnavailableError
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.fds import memfd, n_open, send_with
from tests.fakes.serving import LocalServer
from tests.fakes.streams import cancel, to_line

V2 = "infer.v2.sock"
SOUND = bytes(range(8))
PIXELS = bytes(6)
SPEECH = BackendCapabilities(generate=False, transcribe=True, audio_sample_rate=4)
WRITER = BackendCapabilities(v2=True, audio=True, vision=True, audio_sample_rate=4)
SAID = (
    Text("Hello", span=Span(start_ms=0, end_ms=600, no_speech=0.25)),
    Text(" you", span=Span(start_ms=600, end_ms=900)),
)
HEARD = Transcription(
    language="en", language_probability=0.5, audio_ms=2000, computing_ms=500
)
SCRIPT = Script(blocks=SAID, transcription=HEARD, token_delay_s=1)


def speech(*scripts: Script) -> ScriptedBackend:
    return ScriptedBackend(*(scripts or (SCRIPT,)), name="speech", capabilities=SPEECH)


def writer() -> ScriptedBackend:
    return ScriptedBackend(name="writer", capabilities=WRITER)


def asked(
    *more: dict[str, Any], sound: dict[str, Any] | None = None, **fields: Any
) -> bytes:
    given = {"bytes": base64.b64encode(SOUND).decode()} if sound is None else sound
    attachment = {"kind": "audio", "id": "s", "sample_rate": 4, **given}
    text = {"type": "text", "text": "a prompt"}
    content = [text, {"type": "audio", "attachment_id": "s"}]
    content += fields.pop("content", [])
    messages = [{"role": "user", "content": content}]
    attachments = [attachment, *more]
    return to_line(
        {"id": "r", "messages": messages, "attachments": attachments, **fields}
    )


def live(**fields: Any) -> bytes:
    return asked(sound={"open": True}, **fields)


def append(data: bytes = SOUND, **fields: Any) -> bytes:
    line = {"type": "append", "id": "r", "attachment_id": "s", **fields}
    return to_line({"bytes": base64.b64encode(data).decode(), **line})


def close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


@asynccontextmanager
async def connected(*backends: ScriptedBackend, **settings: Any):
    """Open a server and a connection; in the end nothing is left of what was asked."""
    before = n_open()
    async with LocalServer(*backends, **settings).opened() as server:
        async with server.connect(V2) as client:
            yield server, client
        await trio.testing.wait_all_tasks_blocked()
        assert server.is_empty
    assert all(backend.is_idle for backend in backends)
    assert n_open() <= before


async def answer_of(line: bytes, *backends: ScriptedBackend):
    async with connected(*backends) as (_, client):
        with capture_logs() as log:
            await client.send(line)
            answer = await client.answer()
            await client.half_close()
            assert await client.rest() == []
        [told] = [each["event"] for each in log if each.get("req_id") == "r"]
        assert told.endswith("done") == (answer[-1]["type"] == "done")
        return answer


# --- who does it ------------------------------------------------------------------------


async def test_a_recording_is_transcribed_by_a_backend_that_can(autojump_clock):
    backend = speech()
    *pieces, done = await answer_of(asked(language="en"), backend)
    assert [frame["block"] for frame in pieces] == [
        *(
            {
                "type": "text",
                "delta": "Hello",
                "start_ms": 0,
                "end_ms": 600,
                "no_speech": 0.25,
            },
            {"type": "text", "delta": " you", "start_ms": 600, "end_ms": 900},
        )
    ]
    assert done["stop_reason"] == "end_turn"
    assert done["transcription"] == {
        "language": "en",
        "language_probability": 0.5,
        "audio_ms": 2000,
        "real_time_factor": 0.25,
    }
    [job] = backend.jobs
    assert isinstance(job, TranscribeJob)
    assert (job.prompt, job.language, job.audio.n_bytes) == ("a prompt", "en", 8)
    assert backend.media == [[SOUND]]


async def test_a_generating_backend_gets_the_audio_in_its_place(autojump_clock):
    backend = writer()
    frames = await answer_of(asked(), backend, speech())
    assert "transcription" not in frames[-1]
    [job] = backend.jobs
    assert isinstance(job, GenerateJob)
    assert job.turns[0].text == f"a prompt{job.marker}"
    assert len(job.marker) == 32
    assert backend.media == [[SOUND]]


async def test_every_request_has_its_own_media_marker(autojump_clock):
    backend = writer()
    async with connected(backend) as (_, client):
        for _ in range(3):
            await client.send(asked())
            await client.answer()
    assert len({job.marker for job in backend.jobs}) == 3


async def test_media_by_descriptor_are_passed_on_in_their_order(autojump_clock):
    backend = writer()
    image = {"kind": "image", "id": "i", "width": 2, "height": 1, "fd": 1}
    block = {"type": "image", "attachment_id": "i"}
    line = asked(image, sound={"fd": 0}, content=[block, block])
    fds = [memfd(SOUND), memfd(PIXELS)]
    async with connected(backend) as (_, client):
        await send_with(client.stream, line, fds)
        close_all(fds)
        with capture_logs() as log:
            assert (await client.answer())[-1]["type"] == "done"
    assert backend.media == [[SOUND, PIXELS, PIXELS]]
    [told] = [each for each in log if each.get("req_id") == "r"]
    assert (told["n_images"], told["audio_ms"]) == (2, 500)


async def test_a_bad_attachment_is_refused_before_the_backend_has_the_job(
    autojump_clock,
):
    backend = speech()
    [error] = await answer_of(asked(sound={"bytes": "AAA"}), backend)
    assert error["code"] == "invalid_request"
    assert backend.jobs == []


# --- sound that is appended -------------------------------------------------------------


async def test_appended_audio_reaches_the_backend_and_its_end_ends_the_answer(
    autojump_clock,
):
    backend = speech()
    async with connected(backend) as (_, client):
        await client.send(live() + append())
        await trio.sleep(5)
        assert backend.n_running == 1
        await client.send(append(end=True))
        frames = await client.answer()
    assert [frame["block"]["delta"] for frame in frames[:-1]] == ["Hello", " you"]
    assert frames[-1]["transcription"]["latency_ms"] == 2000
    assert backend.jobs[0].audio.is_open


async def test_partial_transcripts_are_sent_if_the_answer_is_streamed(autojump_clock):
    partial = Partial("Hel", Span(start_ms=0, end_ms=300))
    script = Script(blocks=(partial, *SAID))  # type: ignore[arg-type]
    partial_frame, *streamed = await answer_of(
        live() + append(end=True), speech(script)
    )
    assert (partial_frame["status"], partial_frame["text"]) == ("partial", "Hel")
    whole = await answer_of(live(stream=False) + append(end=True), speech(script))
    assert [each["block"] for each in whole[:-1]] == [
        each["block"] for each in streamed[:-1]
    ]


async def test_audio_that_was_processed_makes_room_for_more(autojump_clock):
    backend, fds = speech(), [memfd(bytes(6 * 2**20))]
    async with connected(backend, max_audio_ahead_bytes=4 * 2**20) as (_, client):
        await client.send(live())
        line = {"type": "append", "id": "r", "attachment_id": "s", "fd": 0, "end": True}
        await send_with(client.stream, to_line(line), fds)
        assert (await client.answer())[-1]["type"] == "done"
    close_all(fds)


async def test_a_transcription_waits_in_the_queue(autojump_clock):
    backend = speech()
    async with connected(backend) as (server, client):
        async with server.connect(V2) as first:
            await first.send(live())
            await trio.testing.wait_all_tasks_blocked()
            await client.send(live() + append() + append(end=True))
            await trio.sleep(5)
            assert (server.admission.active, server.admission.waiting) == (1, 1)
            await first.send(append(end=True))
            await first.answer()
            assert (await client.answer())[-1]["type"] == "done"


@pytest.mark.parametrize("line", [append(bytes(3)), append(attachment_id="t")])
async def test_an_invalid_append_is_one_error(line, autojump_clock):
    backend = speech()
    async with connected(backend) as (_, client):
        await client.send(live() + line)
        [error] = await client.answer()
        assert (error["code"], error["id"]) == ("invalid_request", "r")
        await client.send(asked())
        assert (await client.answer())[-1]["type"] == "done"


async def test_a_cancel_sends_one_terminal_frame(autojump_clock):
    async with connected(speech()) as (_, client):
        await client.send(live() + append())
        await trio.sleep(1)
        await client.send(cancel("r"))
        [done] = await client.answer()
    assert done["stop_reason"] == "cancelled"
    assert not {"transcription", "seed"} & done.keys()


async def test_a_deadline_sends_one_terminal_frame(autojump_clock):
    [error] = await answer_of(live(deadline_ms=1000) + append(), speech())
    assert error["code"] == "deadline_exceeded"


async def test_a_backend_that_dies_sends_one_terminal_frame(autojump_clock):
    backend = speech()
    async with connected(backend) as (_, client):
        await client.send(live() + append())
        await trio.sleep(1)
        backend.stop("it is gone")
        [error] = await client.answer()
    assert error["code"] == "backend_unavailable"


async def test_a_backend_that_fails_in_the_middle_sends_one_terminal_frame(
    autojump_clock,
):
    script = Script(blocks=SAID[:1], failure=BackendUnavailableError("gone"))
    piece, error = await answer_of(live() + append(end=True), speech(script))
    assert piece["block"]["delta"] == "Hello"
    assert error["code"] == "backend_unavailable"


async def test_a_client_that_leaves_leaves_nothing(autojump_clock):
    backend = speech(Script(prepare_s=FOR_EVER), SCRIPT)
    for _ in range(2):  # while it is read, and while it runs
        async with connected(backend) as (_, client):
            await client.send(live() + append())
            await trio.sleep(1)


async def test_a_client_that_disconnects_early_is_not_sent_more(autojump_clock):
    backend = speech(Script(refusal=BackendUnavailableError("no")), SCRIPT)
    async with connected(backend) as (_, client):
        await client.send(live() + append() + append(end=True))
        [error] = await client.answer()
        assert error["code"] == "backend_unavailable"
        await client.send(append() + asked())
        assert (await client.answer())[-1]["type"] == "done"
