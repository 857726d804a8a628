"""whisper.cpp without us: what the binding's own module makes of files, as it comes.

    python -m tests.model.whisper_alone MODEL LANGUAGE|translate FILE.wav…

It writes one line of JSON for each file: its segments, each with beginning and end in
milliseconds and a text. A process of its own, since the library is not to be trusted.
"""

import json
import subprocess
import sys
import wave
from collections.abc import Sequence
from pathlib import Path

import _pywhispercpp as whisper
import numpy as np
import numpy.typing as npt

Segment = tuple[int, int, str]


def heard_alone(
    model: Path, files: Sequence[Path], *, language: str = "en", translate: bool = False
) -> list[list[Segment]]:
    """Have files written down; give the segments of each."""
    options = ["--translate"] if translate else []
    command = [sys.executable, "-m", __name__, str(model), language, *options]
    result = subprocess.run(
        [*command, *map(str, files)], capture_output=True, text=True, check=True
    )
    return [
        [(first, last, text) for first, last, text in json.loads(line)]
        for line in result.stdout.splitlines()
    ]


def main() -> None:
    model, language, *files = sys.argv[1:]
    translate = "--translate" in files
    context = whisper.whisper_init_from_file_with_params(
        model, whisper.whisper_context_default_params()
    )
    for path in files[translate:]:
        parameters = whisper.whisper_full_default_params(
            whisper.WHISPER_SAMPLING_GREEDY
        )
        parameters.language = language
        parameters.translate = translate
        parameters.n_threads = 1
        parameters.print_progress = False
        samples = samples_of(path)
        assert whisper.whisper_full(context, parameters, samples, len(samples)) == 0
        print(json.dumps(segments(context)))  # noqa: T201  # its answer


def samples_of(path: str) -> npt.NDArray[np.float32]:
    with wave.open(path) as file:
        values = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return (values / 32768).astype(np.float32)


def segments(context: object) -> list[Segment]:
    return [
        (
            10 * whisper.whisper_full_get_segment_t0(context, number),
            10 * whisper.whisper_full_get_segment_t1(context, number),
            whisper.whisper_full_get_segment_text(context, number).decode(),
        )
        for number in range(whisper.whisper_full_n_segments(context))
    ]


if __name__ == "__main__":
    main()
