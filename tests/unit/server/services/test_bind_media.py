import base64
import errno
import os
from typing import Any

import pytest

from inferd.backend.caller import Caller
from inferd.backend.job import GenerateJob, TranscribeJob
from inferd.config.settings import LimitSettings
from inferd.errors import BackendUnavailableError, InvalidRequestError
from inferd.resolve.v2 import resolve_v2
from inferd.server.media.quota import MediaQuota
from inferd.server.services.v2 import bind_media, media_stats, open_audio
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    Block,
    BlocksRequest,
    ImageAttachment,
    ImageBlock,
    Message,
    TextBlock,
)
from tests.fakes.fds import memfd, memfds, n_open

ROOM = MediaQuota(LimitSettings(), 10, lambda: 0)
PIXELS = bytes(range(6))
SOUND = bytes(range(8))


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


IMAGE = ImageAttachment("i", 2, 1, text(PIXELS))
AUDIO = AudioAttachment("s", 4, text(SOUND))
OPEN = AudioAttachment("s", 4, text(SOUND), open=True)


def asked(*attachments: Any) -> BlocksRequest:
    blocks: list[Block] = [TextBlock("t"), ImageBlock("i"), AudioBlock("s")]
    return BlocksRequest(
        messages=[Message("user", [*blocks, ImageBlock("i")])],
        attachments=list(attachments or (IMAGE, AUDIO)),
    )


def heard(*attachments: Any) -> BlocksRequest:
    message = Message("user", [AudioBlock("s")])
    return BlocksRequest(messages=[message], attachments=list(attachments))


def job_of(request: BlocksRequest, n_fds: int = 0) -> GenerateJob:
    return resolve_v2(request, seed=1, marker="#", n_fds=n_fds).job


def speech_of(request: BlocksRequest) -> TranscribeJob:
    job = resolve_v2(request, seed=1).transcription
    assert job is not None
    return job


def contents(fds: list[int]) -> list[bytes]:
    return [os.pread(fd, 100, 0) for fd in fds]


async def test_a_job_gets_its_media_in_order_one_that_stands_twice_twice():
    request = asked()
    with ROOM.open(Caller(1000)) as request_media:
        job, fds = await bind_media(job_of(request), request, (), request_media)
        assert isinstance(job, GenerateJob)
        assert [each.n_bytes for each in job.media] == [6, 8, 6]
        assert contents(fds) == [PIXELS, SOUND, PIXELS]
        assert len(set(fds)) == 2
        assert media_stats(job.media) == {"n_images": 2, "audio_ms": 500}
        assert open_audio(request_media) is None


async def test_a_passed_file_remains_the_client_s_too():
    request = asked(ImageAttachment("i", 2, 1, fd=1), AudioAttachment("s", 4, fd=0))
    theirs = [memfd(SOUND), memfd(PIXELS)]
    with ROOM.open(Caller(1000)) as request_media:
        _, fds = await bind_media(
            job_of(request, n_fds=2), request, theirs, request_media
        )
        assert contents(fds) == [PIXELS, SOUND, PIXELS]
    assert contents(theirs) == [SOUND, PIXELS]
    for fd in theirs:
        os.close(fd)


async def test_two_attachments_may_be_of_one_descriptor():
    blocks: list[Block] = [AudioBlock("s"), AudioBlock("t")]
    request = BlocksRequest(
        messages=[Message("user", blocks)],
        attachments=[AudioAttachment(name, 4, fd=0) for name in ("s", "t")],
    )
    with memfds(SOUND) as theirs, ROOM.open(Caller(1000)) as request_media:
        _, fds = await bind_media(
            job_of(request, n_fds=1), request, theirs, request_media
        )
        assert contents(fds) == [SOUND, SOUND]


async def test_all_is_closed_in_the_end():
    before, request = n_open(), heard(OPEN)
    with ROOM.open(Caller(1000)) as request_media:
        await bind_media(speech_of(request), request, (), request_media)
        assert n_open() > before
    assert n_open() == before
    assert not ROOM.held_bytes


async def test_an_attachment_that_no_block_refers_to_is_not_loaded():
    other = ImageAttachment("other", 1, 1, "no base64")
    request = asked(IMAGE, AUDIO, other)
    with ROOM.open(Caller(1000)) as request_media:
        await bind_media(job_of(request), request, (), request_media)


async def test_open_sound_begins_with_what_is_there():
    request = heard(OPEN)
    with ROOM.open(Caller(1000)) as request_media:
        job, fds = await bind_media(speech_of(request), request, (), request_media)
        assert isinstance(job, TranscribeJob)
        assert (job.audio.n_bytes, contents(fds)) == (8, [SOUND])
        sound = open_audio(request_media)
        assert sound is not None
        assert sound.fd == fds[0]


async def test_open_sound_may_begin_with_a_file_or_nothing():
    theirs = memfd(SOUND)
    for attachment, n_bytes in (
        (AudioAttachment("s", 4, fd=0, open=True), 8),
        (AudioAttachment("s", 4, open=True), 0),
    ):
        request = heard(attachment)
        with ROOM.open(Caller(1000)) as request_media:
            plan = resolve_v2(request, seed=1, n_fds=1)
            assert plan.transcription is not None
            job, _ = await bind_media(
                plan.transcription, request, [theirs], request_media
            )
            assert isinstance(job, TranscribeJob)
            assert job.audio.n_bytes == n_bytes
    os.close(theirs)


@pytest.mark.parametrize(
    "attachments",
    [
        (ImageAttachment("i", 2, 2, text(PIXELS)), AUDIO),
        (IMAGE, AudioAttachment("s", 4, text(bytes(7)))),
        (IMAGE, AudioAttachment("s", 4, "no base64")),
    ],
)
async def test_an_attachment_that_differs_from_its_declaration_is_refused(attachments):
    before, request = n_open(), asked(*attachments)
    with ROOM.open(Caller(1000)) as request_media:
        with pytest.raises(InvalidRequestError, match='attachment "'):
            await bind_media(job_of(request), request, (), request_media)
    assert n_open() == before


async def test_a_job_without_media_has_no_media_stats():
    assert media_stats(()) == {}


async def test_a_lack_of_descriptors_is_an_error(monkeypatch):
    theirs = [memfd(SOUND), memfd(SOUND)]
    blocks: list[Block] = [AudioBlock("s"), AudioBlock("t")]
    request = BlocksRequest(
        messages=[Message("user", blocks)],
        attachments=[AudioAttachment("s", 4, fd=0), AudioAttachment("t", 4, fd=1)],
    )
    before = n_open()
    dup, n_left = os.dup, [1]

    def no_more(fd: int) -> int:
        n_left[0] -= 1
        if n_left[0] < 0:
            raise OSError(errno.EMFILE, "too many")
        return dup(fd)

    monkeypatch.setattr("os.dup", no_more)
    job = resolve_v2(request, seed=1, n_fds=2).job
    with (
        ROOM.open(Caller(1000)) as request_media,
        pytest.raises(BackendUnavailableError),
    ):
        await bind_media(job, request, theirs, request_media)
    assert n_open() == before
    for fd in theirs:
        os.close(fd)
