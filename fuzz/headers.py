"""A hundred thousand hostile model files through the readers of their headers.

Prints what came of them and the rate. A finding is printed with the command that replays
its file; the exit status is 1 then. What a file may cost is counted in reads.

    python -m fuzz.headers 100000
    python -m fuzz.headers --seed 1 --replay 1234
"""

import argparse
import io
import random
import secrets
import struct
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from fuzz.judge import BrokenPromiseError
from inferd.limits.model_files import SHOWN_TEMPLATE_BYTES, SHOWN_TEXT_BYTES
from inferd.models.facts.gguf_facts import KEPT_TEXTS, chat_template, gguf_facts
from inferd.models.facts.model import ModelFacts
from inferd.models.facts.whisper_facts import whisper_facts
from inferd.models.file_error import ModelFileError
from inferd.models.gguf_header.header import read_contents
from inferd.models.whisper_header.header import read_header
from tests.fakes.gguf_bytes import TEXT, gguf, pair, sound, tensor, text
from tests.model.tiny import write_tiny_bert, write_tiny_model
from tests.unit.worker.whisper.models import model_bytes

N_FILES: Final = 100_000
SAY_EVERY: Final = 20_000
MAX_READS: Final = 6
"""Reads of one file: all are smaller than a chunk."""
HEADER_BYTES: Final = 24_000
"""Bytes at the beginning that are changed: the header of the largest seed."""
TRUNCATED_SHARE: Final = 0.1
"""How many files end too soon."""
NUMBERS: Final = (
    *(0, 1, 2, 3, 7, 8, 9, 12, 31, 32, 63, 64, 65, 255, 256, 1023, 1024, 4096),
    *(2**16 - 1, 2**16, 2**24, 2**27, 2**31 - 1, 2**31, 2**32 - 1),
    *(2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 0x7FC00000, 0xFF800000),
)
"""Counts, lengths, types and floats that are at or over bounds."""


@dataclass
class FileTally:
    """What came of a number of files."""

    n_files: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Number of the first file, and its traceback, by the kind of finding."""


class CountedBytes(io.BytesIO):
    """A file in memory that counts its reads."""

    n_reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read, and count it."""
        self.n_reads += 1
        if size is None or size < 0:
            raise BrokenPromiseError("a read without a bound")
        return super().read(size)


def seeds() -> list[bytes]:
    """Make sound files of both formats."""
    with TemporaryDirectory() as directory:
        tiny = write_tiny_model(Path(directory) / "m.gguf").read_bytes()
        bert = write_tiny_bert(Path(directory) / "e.gguf").read_bytes()
    rich = gguf(
        pairs=[
            pair(b"general.architecture", TEXT, text(b"llama")),
            pair(b"general.name", TEXT, text(b"Tiny")),
            pair(b"general.license", TEXT, text(b"mit")),
            pair(b"tokenizer.chat_template", TEXT, text(b"{{ messages }}" * 9)),
        ],
        tensors=[tensor(b"token_embd.weight", [32, 2]), tensor(b"b", [4], offset=256)],
        data=bytes(256 + 16),
    )
    return [sound(), rich, rich, tiny, bert, model_bytes()]


def mutant(rng: random.Random, files: list[bytes]) -> bytes:
    """Change a sound file in one to six places of its header."""
    content = bytearray(rng.choice(files))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        place = rng.randrange(4, max(5, min(len(content), HEADER_BYTES)))
        match rng.randrange(6):
            case 0:
                content[place : place + 1] = rng.randbytes(1)
            case 1:
                content[place : place + 4] = struct.pack(
                    "<I", rng.choice(NUMBERS) % 2**32
                )
            case 2:
                content[place : place + 8] = struct.pack("<Q", rng.choice(NUMBERS))
            case 3:
                content[place:place] = rng.randbytes(rng.randrange(1, 40))
            case 4:
                del content[place : place + rng.randrange(1, 40)]
            case _:
                other = rng.choice(files)
                begin = rng.randrange(len(other))
                piece = other[begin : begin + rng.randrange(1, 200)]
                content[place : place + len(piece)] = piece
    if rng.random() < TRUNCATED_SHARE:
        del content[rng.randrange(len(content)) :]
    return bytes(content)


def judge(content: bytes) -> str:
    """Read a file; give a word for what came of it.

    Raises:
        BrokenPromiseError: not what must come, or any other exception.
    """
    file = CountedBytes(content)
    try:
        if content.startswith(b"GGUF"):
            contents = read_contents(file, len(content), KEPT_TEXTS)
            facts, template = gguf_facts([contents]), chat_template(contents)
        else:
            facts, template = (
                whisper_facts(read_header(file, len(content)), len(content)),
                "",
            )
    except ModelFileError:
        outcome = "refused"
    else:
        outcome = f"read as {facts.kind}"
        check(facts, template)
    if file.n_reads > MAX_READS:
        raise BrokenPromiseError(f"{file.n_reads} reads of {len(content)} bytes")
    return outcome


def check(facts: ModelFacts, template: str) -> None:
    """See that what was read is bounded, and that it can be printed.

    Raises:
        BrokenPromiseError: it is not.
    """
    msgspec.json.encode(facts)
    if max(len(facts.name), len(facts.license)) > SHOWN_TEXT_BYTES:
        raise BrokenPromiseError("a name that is no name")
    if len(template) > SHOWN_TEMPLATE_BYTES:
        raise BrokenPromiseError("a template that is too long")
    if not 0 <= facts.token_bytes <= facts.n_bytes:
        raise BrokenPromiseError(
            f"{facts.token_bytes} of {facts.n_bytes} bytes a token"
        )


def try_files(seed: int, numbers: range) -> FileTally:
    """Try the files of these numbers."""
    files, tally = seeds(), FileTally()
    began_at = time.monotonic()
    for number in numbers:
        tally.n_files += 1
        try:
            tally.outcomes[judge(mutant(_generator(seed, number), files))] += 1
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            [last] = traceback.extract_tb(error.__traceback__)[-1:]
            kind = f"{type(error).__name__} in {last.name}"
            what = "".join(traceback.format_exception(error)[-4:])
            tally.findings.setdefault(kind, (number, what))
        if tally.n_files % SAY_EVERY == 0:
            rate = tally.n_files / (time.monotonic() - began_at)
            say(f"{tally.n_files:,} files, {rate:,.0f}/s, {len(tally.findings)} kinds")
    return tally


def _generator(seed: int, number: int) -> random.Random:
    return random.Random((seed << 64) + number)  # noqa: S311  # nobody's secret


def say(line: str) -> None:
    """Tell the person who waits."""
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Try the files that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n_files", type=int, nargs="?", default=N_FILES)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--replay", type=int, metavar="NUMBER")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    numbers = range(arguments.n_files)
    if arguments.replay is not None:
        numbers = range(arguments.replay, arguments.replay + 1)
    say(f"seed {seed}, {len(numbers):,} files")
    tally = try_files(seed, numbers)
    for outcome, n_times in sorted(tally.outcomes.items()):
        say(f"{n_times:>12,}  {outcome}")
    for kind, (number, what) in tally.findings.items():
        say(f"{kind}\n{what}  python -m fuzz.headers --seed {seed} --replay {number}")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
