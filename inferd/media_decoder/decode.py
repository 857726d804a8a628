"""Decode one file into a memfd."""

import math
import os
from io import BytesIO
from typing import BinaryIO, Final

import av
from PIL import AvifImagePlugin, Image

from inferd.client.media.audio_decoder import decode_open
from inferd.client.media.errors import MediaError
from inferd.client.media.pictures import PICTURE_FORMATS, decode_picture
from inferd.client.media.sound import BYTES_PER_S, SoundError, split_blocks
from inferd.limits.media_decoder import MAX_FAULT_CHARS
from inferd.media_decoder.messages import DecodeMedium, DecoderReport

_WARM_PIXELS: Final = (8, 8)


def warm_up() -> None:
    """Have the libraries import and set up what they otherwise do with their first file.

    A decoder can open no file for that.
    """
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # a decoder starts no thread
    av.logging.set_level(None)
    Image.init()
    for name in PICTURE_FORMATS:
        file = BytesIO()
        Image.new("RGB", _WARM_PIXELS).save(file, name)
        file.seek(0)
        decode_picture(file, math.prod(_WARM_PIXELS))
    _warm_sound()


def _warm_sound() -> None:
    file = BytesIO()
    with av.open(file, "w", format="wav") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame(format="s16", layout="mono", samples=8000)
        frame.sample_rate = 8000
        for packet in (*stream.encode(frame), *stream.encode(None)):
            container.mux(packet)
    file.seek(0)
    for _ in decode_open(file):
        pass


def decode_into(task: DecodeMedium, file: BinaryIO, target: int) -> DecoderReport:
    """Decode a file, and write what is decoded to a descriptor.

    Returns:
        The size of a picture; or what is wrong with the file, and what has been written is
        of no use.
    """
    try:
        if task.kind == "sound":
            return _decode_sound(task, file, target)
        picture = decode_picture(file, task.max_pixels)
        for strip in picture.strips():
            _write(target, strip)
        return DecoderReport(width=picture.width, height=picture.height)
    except MediaError as error:
        return DecoderReport(fault=str(error)[:MAX_FAULT_CHARS])
    except MemoryError:
        return DecoderReport(fault="decoding it takes too much memory")
    except Exception as error:  # noqa: BLE001  # of a library, about a broken file
        return DecoderReport(fault=f"decoding it fails with {type(error).__name__}")


def _decode_sound(task: DecodeMedium, file: BinaryIO, target: int) -> DecoderReport:
    n_left = task.max_bytes
    for block in split_blocks(decode_open(file)):
        n_left -= len(block)
        if n_left < 0:
            max_s = task.max_bytes // BYTES_PER_S
            raise SoundError(f"longer than {max_s} s, which are allowed")
        _write(target, block)
    return DecoderReport()


def _write(target: int, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(target, rest) :]
