"""The commands and programs of all pages do what they say, with a daemon of five models."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from PIL import Image

from tests.daemon.harness import Frame, clean_environ, eventually
from tests.documents.catalogue import ALL, PROGRAMS, run_by
from tests.documents.pages import PAGES, ROOT, command, texts
from tests.documents.typed import (
    Check,
    has,
    is_calls,
    is_count,
    is_nothing,
    is_order,
    is_person,
    is_something,
    is_vector,
    run,
    serving,
    words_of,
)
from tests.fakes.hub import Hub, running_hub
from tests.fakes.recordings import transcode
from tests.model.tiny import write_tiny_model
from tests.model.tiny_projector import write_tiny_projector
from tools.spoken_clip import clip_path, compressed_clip_path

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.short_version]

SPOKEN: Final = (
    "and so my fellow americans ask not what your country can do for you "
    "ask what you can do for your country"
)
SPOKEN_MS: Final = 11_000


def is_spoken(output: str) -> None:
    """Check the transcript of the clip."""
    assert words_of(output) == SPOKEN


CHECKS: Final[dict[str, Check]] = {
    r"""printf '%s\n' '{"id":"2",""": is_person,
    r"""printf '%s\n' '{"id":"3",""": is_calls,
    'generate "What differs': is_something,
    'generate "Who is speaking': is_something,
    "generate --count": is_count,
    "generate --model me/my-model:q4": is_something,
    "embed": is_vector,
    "rerank": is_order,
    "transcribe talk": is_spoken,
    "transcribe *": is_nothing,
    "arecord -q -t raw -f S16_LE -r 16000 -c 1 |": is_spoken,
    "model import": is_nothing,
    "model pull": is_nothing,
    "reload": is_nothing,
    """echo '{"command":"metrics"}'""": has("inferd_requests_total"),
}
"""How a command's output is checked, by how it begins; ``inferd`` is left out."""
NEEDS: Final = {
    "generate --model me/my-model:q4": ("docs/models.md", "model import my")
}
"""The command of a page that has been typed before."""


def check_subtitles(directory: Path) -> None:
    written = {each.name: each.read_text() for each in directory.iterdir()}
    assert written.keys() == {"a.srt", "a.vtt"}
    assert written["a.srt"].startswith("1\n00:00:0")
    assert written["a.vtt"].startswith("WEBVTT\n")
    for text in written.values():
        cues = [line for line in text.splitlines()[1:] if "-->" not in line]
        assert words_of(" ".join(cues)) == SPOKEN


WRITTEN: Final[dict[str, Callable[[Path], None]]] = {"transcribe *": check_subtitles}
"""How the folder is checked that a command writes."""
LOGGED: Final[dict[str, Frame]] = {
    'generate "What differs': {"backend": "vision", "n_images": 2},
    'generate "Who is speaking': {"backend": "vision", "audio_ms": SPOKEN_MS},
}
"""What the log tells of a command whose output says nothing: the model is a random one."""


def start_of(line: str) -> str:
    """Give the key of the checks for a line."""
    words = line.replace(".venv/bin/", "").removeprefix("inferd ")
    [start] = [start for start in CHECKS if words.startswith(start)]
    return start


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with TemporaryDirectory(prefix="inferd-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def files(scratch: Path) -> Path:
    """What somebody has who types that: recordings, pictures and a microphone."""
    directory = scratch / "files"
    directory.mkdir()
    shutil.copy(compressed_clip_path(), directory / "talk.mp3")
    shutil.copy(clip_path(), directory / "call.wav")
    transcode(clip_path(), directory / "a.m4a")
    write_tiny_model(directory / "my-model.gguf")
    for number, name in enumerate(("before.jpg", "after.png")):
        Image.new("RGB", (64, 48), (200 * number, 90, 20)).save(directory / name)
    microphone = scratch / "arecord"
    samples = f"tail -c {SPOKEN_MS * 16 * 2} {clip_path()}"
    microphone.write_text(f"#!/bin/sh\nexec {samples}\n")
    microphone.chmod(0o755)
    return directory


def configuration(scratch: Path) -> str:
    """Put the pages' backends together; a small one stands for the model that sees."""
    wanted = {
        "embedded:rerank": "docs/serving.md",
        "mmproj": "docs/serving.md",
        "serve = true ": "docs/serving.md",
        "embedded:speech": "docs/speech.md",
    }
    parts = [
        text
        for word, page in wanted.items()
        for text in texts(page, "toml")
        if word in text
    ]
    assert len(parts) == len(wanted)
    model = write_tiny_model(scratch / "model.gguf", kind="f32")
    mmproj = write_tiny_projector(scratch / "mmproj.gguf", hears=True)
    return (
        "\n".join(parts)
        .replace("[[backend]]", "[[backend]]\nn_threads = 1")  # others compute, too
        .replace("/srv/models/some-model.gguf", str(model))
        .replace("/srv/models/mmproj-some-model.gguf", str(mmproj))
    )


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    """A hub that has the pages' repository."""
    pull = command("docs/models.md", "model pull hf:")
    [repository] = re.findall(r"model pull hf:([\w/.-]+)", pull)
    with running_hub() as hub:
        hub.add_repository(repository, {"m-Q4_K_M.gguf": b"GGUF" + b"w" * 100})
        yield hub


@pytest.fixture(scope="module")
def environ(scratch: Path, hub: Hub) -> dict[str, str]:
    """Nothing of the machine's own but its models, and the pages'."""
    config = scratch / "config.toml"
    config.write_text(configuration(scratch))
    return clean_environ() | {
        "INFERD_LOG_DIR": str(scratch / "log"),
        "XDG_RUNTIME_DIR": str(scratch),
        "INFERD_MODELS": f"{scratch}/models:{os.environ.get('INFERD_MODELS', '')}",
        "HF_ENDPOINT": hub.endpoint,
        "SSL_CERT_FILE": str(hub.ca_file),
        "INFERD_CONFIG": str(config),
        "PATH": f"{scratch}:{os.environ['PATH']}",
    }


@pytest.fixture(scope="module")
def daemon(environ: dict[str, str]) -> Iterator[dict[str, str]]:
    with serving(environ):
        yield environ


def tells(log: Path, fields: Frame) -> bool:
    """Find a line of a request that was answered, with such fields."""
    lines = [line for line in log.read_text().splitlines() if line.endswith("}")]
    done = [each for each in map(json.loads, lines) if each["msg"] == "v2_request_done"]
    return any(fields.items() <= each.items() for each in done)


@pytest.mark.parametrize("line", [each.text for each in run_by(ALL)])
def test_a_command_works(daemon, files, line):
    start = start_of(line)
    if before := NEEDS.get(start):
        run(command(*before), daemon, files)
    line = line.replace("/run/inferd/", "$sockets/").replace("'$sockets'", "$sockets")
    CHECKS[start](run(line, daemon, files))
    if start in WRITTEN:
        WRITTEN[start](files / "subtitles")
    if start in LOGGED:
        log = Path(daemon["INFERD_LOG_DIR"]) / "inferd.ndjson"
        assert eventually(lambda: tells(log, LOGGED[start]))


@pytest.mark.parametrize(
    "program",
    [
        text
        for page in PAGES
        if PROGRAMS.get(page) == ALL
        for text in texts(page, "python")
    ],
)
def test_a_program_works(daemon, program):
    is_something(
        subprocess.check_output(
            [sys.executable, "-c", program], cwd=ROOT, env=daemon, text=True
        )
    )
