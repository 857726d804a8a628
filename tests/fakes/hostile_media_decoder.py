"""A process that forks decoders which a file has taken over, as the bridge starts it.

The file says what they do.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from inferd.media_decoder import decode
from inferd.media_decoder.__main__ import main
from inferd.media_decoder.messages import DecodeMedium, DecoderReport

PROGRAM = (str(Path(__file__)),)
MORE_THAN_A_PICTURE = 2**27
HONEST = decode.decode_into


def spin(_: int) -> DecoderReport:
    while True:
        pass


def fill_memory(_: int) -> DecoderReport:
    kept = []
    while True:
        kept.append(bytes(2**20))


def crash(_: int) -> DecoderReport:
    os.abort()


def claim_more(target: int) -> DecoderReport:
    os.write(target, bytes(30))
    return DecoderReport(width=100, height=100)


def claim_nothing(_: int) -> DecoderReport:
    return DecoderReport()


def end_silently(target: int) -> DecoderReport:
    os.write(target, bytes(30))
    os._exit(0)


def write_too_much(target: int) -> DecoderReport:
    for _ in range(MORE_THAN_A_PICTURE // 2**20):
        os.write(target, bytes(2**20))
    return DecoderReport()


def speak_with_controls(_: int) -> DecoderReport:
    return DecoderReport(fault="\x1b[2J\nbad")


DEEDS: dict[str, Callable[[int], DecoderReport]] = {
    deed.__name__: deed
    for deed in (
        *(spin, fill_memory, crash, claim_more, claim_nothing),
        *(end_silently, write_too_much, speak_with_controls),
    )
}


def decode_into(task: DecodeMedium, file: BinaryIO, target: int) -> DecoderReport:
    """Do what the file says."""
    name = file.read(40).decode("ascii", "replace")
    if name in DEEDS:
        return DEEDS[name](target)
    file.seek(0)
    return HONEST(task, file, target)


if __name__ == "__main__":
    decode.decode_into = decode_into
    main()
