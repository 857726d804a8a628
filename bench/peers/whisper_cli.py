"""whisper.cpp's own command line, of the same release: a peer to be measured against.

It is built from the sources of our binding, once, with the flags that the binding's wheel
has: no `-march=native`, and all else as it comes.

    python -m bench.peers.whisper_cli       # build it now; says where it is
"""

import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.peers.build import Peer, kept
from bench.peers.source import WHISPER, version

TOOL: Final = "whisper-cli"
FLAGS: Final = (
    "-DGGML_NATIVE=OFF",
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",  # one file to keep
    "-DWHISPER_BUILD_TESTS=OFF",
    "-DWHISPER_BUILD_SERVER=OFF",
)
GREEDY: Final = ("--beam-size", "1", "--best-of", "5")
"""As the library decodes by default; the command line would search with five beams."""
SEGMENT: Final = re.compile(r"^\[[0-9:.]+ --> [0-9:.]+\]  (.*)$", re.MULTILINE)
TIMING: Final = re.compile(r"(load|total) time = +([0-9.]+) ms")


@dataclass(frozen=True, slots=True)
class Heard:
    """What it made of a file."""

    text: str
    seconds: float
    """It took, without the model's load."""
    first_s: float = 0.0
    """Until the first words were there; 0 where nobody saw."""


def main() -> int:
    """Build it."""
    print(whisper_cli())
    return 0


def whisper_cli() -> Path:
    """Find the program in the cache, or build it."""
    words = (version(WHISPER), *FLAGS, platform.machine(), *platform.libc_ver())
    peer = Peer("whisper.cpp", WHISPER, "whisper.cpp", FLAGS, (TOOL,))
    return kept(peer, words) / TOOL


def command(
    model: Path, sound: Path, *, threads: int, language: str = "en"
) -> list[str]:
    """Give the command line for one file."""
    return [
        *(str(whisper_cli()), "--model", str(model), "--threads", str(threads)),
        *("--language", language, *GREEDY, str(sound)),
    ]


def hear(line: Sequence[str]) -> Heard:
    """Run it; give the text and the time that it tells.

    Raises:
        SystemExit: it failed.
    """
    result = subprocess.run(line, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{TOOL} failed:\n{result.stderr[-2000:]}")
    return Heard(text_in(result.stdout), seconds_in(result.stderr))


def text_in(written: str) -> str:
    """Join the segments that it wrote, each behind its times."""
    return "".join(SEGMENT.findall(written)).strip()


def seconds_in(told: str) -> float:
    """Read the time that it told, without the model's load."""
    times = {name: float(value) for name, value in TIMING.findall(told)}
    return (times["total"] - times["load"]) / 1e3


if __name__ == "__main__":
    sys.exit(main())
