import base64
import errno
import os
from typing import Any

import pytest

from inferd.config import LimitSettings
from inferd.errors import BackendUnavailableError, InvalidRequestError
from inferd.job import GenerateJob, TranscribeJob
from inferd.resolve.blocks import resolve_blocks
from inferd.server.baggage import facts_of_media, open_sound, unpack
from inferd.server.holdings import MediaRoom
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

ROOM = MediaRoom(LimitSettings(), 10, lambda: 0)
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
    return resolve_blocks(request, seed=1, marker="#", n_fds=n_fds).job


def speech_of(request: BlocksRequest) -> TranscribeJob:
    job = resolve_blocks(request, seed=1).transcription
    assert job is not None
    return job


def contents(fds: list[int]) -> list[bytes]:
    return [os.pread(fd, 100, 0) for fd in fds]


async def test_a_job_gets_its_media_in_order_one_that_stands_twice_twice():
    request = asked()
    with ROOM.open(1000) as holdings:
        job, fds = await unpack(job_of(request), request, (), holdings)
        assert isinstance(job, GenerateJob)
        assert [each.n_bytes for each in job.media] == [6, 8, 6]
        assert contents(fds) == [PIXELS, SOUND, PIXELS]
        assert len(set(fds)) == 2
        assert facts_of_media(job.media) == {"n_images": 2, "audio_ms": 500}
        assert open_sound(holdings) is None


async def test_what_came_by_descriptor_stays_its_clients_too():
    request = asked(ImageAttachment("i", 2, 1, fd=1), AudioAttachment("s", 4, fd=0))
    theirs = [memfd(SOUND), memfd(PIXELS)]
    with ROOM.open(1000) as holdings:
        _, fds = await unpack(job_of(request, n_fds=2), request, theirs, holdings)
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
    with memfds(SOUND) as theirs, ROOM.open(1000) as holdings:
        _, fds = await unpack(job_of(request, n_fds=1), request, theirs, holdings)
        assert contents(fds) == [SOUND, SOUND]


async def test_all_is_closed_in_the_end():
    before, request = n_open(), heard(OPEN)
    with ROOM.open(1000) as holdings:
        await unpack(speech_of(request), request, (), holdings)
        assert n_open() > before
    assert n_open() == before
    assert not ROOM.held_bytes


async def test_what_is_no_part_of_the_job_is_not_unpacked():
    other = ImageAttachment("other", 1, 1, "no base64")
    request = asked(IMAGE, AUDIO, other)
    with ROOM.open(1000) as holdings:
        await unpack(job_of(request), request, (), holdings)


async def test_open_sound_begins_with_what_is_there():
    request = heard(OPEN)
    with ROOM.open(1000) as holdings:
        job, fds = await unpack(speech_of(request), request, (), holdings)
        assert isinstance(job, TranscribeJob)
        assert (job.audio.n_bytes, contents(fds)) == (8, [SOUND])
        sound = open_sound(holdings)
        assert sound is not None
        assert sound.fd == fds[0]


async def test_open_sound_may_begin_with_a_file_or_nothing():
    theirs = memfd(SOUND)
    for attachment, n_bytes in (
        (AudioAttachment("s", 4, fd=0, open=True), 8),
        (AudioAttachment("s", 4, open=True), 0),
    ):
        request = heard(attachment)
        with ROOM.open(1000) as holdings:
            plan = resolve_blocks(request, seed=1, n_fds=1)
            assert plan.transcription is not None
            job, _ = await unpack(plan.transcription, request, [theirs], holdings)
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
async def test_what_is_not_what_it_was_said_to_be_is_refused(attachments):
    before, request = n_open(), asked(*attachments)
    with ROOM.open(1000) as holdings:
        with pytest.raises(InvalidRequestError, match='attachment "'):
            await unpack(job_of(request), request, (), holdings)
    assert n_open() == before


async def test_a_text_has_no_facts_of_media():
    assert facts_of_media(()) == {}


async def test_where_there_are_no_more_descriptors_it_is_said(monkeypatch):
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
    job = resolve_blocks(request, seed=1, n_fds=2).job
    with ROOM.open(1000) as holdings, pytest.raises(BackendUnavailableError):
        await unpack(job, request, theirs, holdings)
    assert n_open() == before
    for fd in theirs:
        os.close(fd)
