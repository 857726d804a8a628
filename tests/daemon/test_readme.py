"""The commands of the README do what it says, as somebody would type them."""

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

from inferd.client.sync import wait_until_ready
from inferd.paths import runtime_directory
from tests.daemon.harness import Frame, clean_environ, eventually
from tests.fakes.hub import Hub, running_hub
from tests.fakes.recordings import transcode
from tests.model.tiny import write_tiny_model
from tests.model.tiny_projector import write_tiny_projector
from tools.spoken_clip import clip_path, compressed_clip_path

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
SPOKEN: Final = (
    "and so my fellow americans ask not what your country can do for you "
    "ask what you can do for your country"
)
SPOKEN_MS: Final = 11_000
START_S: Final = 120.0
COMMAND_S: Final = 120.0
SERVE: Final = ".venv/bin/inferd serve"
DOCTOR: Final = ".venv/bin/inferd doctor"


def blocks(language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, README, re.MULTILINE | re.DOTALL)


PROGRAMS: Final = [
    pytest.param(program, id=f"program {number}")
    for number, program in enumerate(blocks("python"), 1)
]
SOCKETS: Final = "sockets="
BRIDGE: Final = (
    ".venv/bin/inferd bridge",
    "curl --silent http://127.0.0.1:8313/",
    "curl http://127.0.0.1:8313/v1/audio/transcriptions ",
)
"""Commands that `tests/daemon/test_bridge.py` and `test_bridge_speech.py` run."""
COMMANDS: Final = [line for block in blocks("sh") for line in block.splitlines()]
PROMPTS: Final = [
    line.removeprefix("$ ")
    for block in blocks("console")
    for line in block.splitlines()
]


def words_of(text: str) -> str:
    return " ".join(re.findall(r"[a-z]+", text.lower()))


def check_frames(output: str) -> None:
    *tokens, done = map(json.loads, output.splitlines())
    assert {frame["type"] for frame in tokens} == {"token"}
    assert done["type"] == "done"
    assert "Paris" in done["content"]


def check_json(output: str) -> None:
    frame, done = map(json.loads, output.splitlines())
    assert json.loads(frame["block"]["delta"]).keys() == {"name", "age"}
    assert done["structure_complete"] is True


def check_calls(output: str) -> None:
    *frames, done = map(json.loads, output.splitlines())
    calls = [frame["block"] for frame in frames]
    assert {call["name"] for call in calls} == {"get_weather"}
    assert {key for call in calls for key in call["input"]} == {"city"}
    assert done["stop_reason"] == "tool_use"
    assert done["structure_complete"] is True


def check_answer(output: str) -> None:
    assert "Paris" in output


def check_count(output: str) -> None:
    assert int(output) > 10


def check_status(output: str) -> None:
    assert output.splitlines()[0] == "ready"


def check_doctor(output: str) -> None:
    assert "[ ok ] admin: the daemon is ready" in output
    assert "[FAIL]" not in output


def check_embedding(output: str) -> None:
    [line] = output.splitlines()
    assert len(json.loads(line)["embedding"]) == 4


def check_order(output: str) -> None:
    assert [json.loads(line)["index"] for line in output.splitlines()] == [1, 0]


def check_transcript(output: str) -> None:
    assert words_of(output) == SPOKEN


def check_nothing_is_printed(output: str) -> None:
    assert output == ""


def check_something_is_said(output: str) -> None:
    assert output.strip()


CHECKS: Final[dict[str, Callable[[str], None]]] = {
    r"""printf '%s\n' '{"id":"1",""": check_frames,
    r"""printf '%s\n' '{"id":"2",""": check_json,
    r"""printf '%s\n' '{"id":"3",""": check_calls,
    '.venv/bin/inferd generate "What is the capital': check_answer,
    '.venv/bin/inferd generate "What differs': check_something_is_said,
    '.venv/bin/inferd generate "Who is speaking': check_something_is_said,
    ".venv/bin/inferd transcribe talk": check_transcript,
    ".venv/bin/inferd transcribe *": check_nothing_is_printed,
    "arecord -q -t raw -f S16_LE -r 16000 -c 1 |": check_transcript,
    ".venv/bin/inferd generate --count": check_count,
    ".venv/bin/inferd embed": check_embedding,
    ".venv/bin/inferd rerank": check_order,
    ".venv/bin/inferd status": check_status,
    DOCTOR: check_doctor,
    ".venv/bin/inferd model import": check_nothing_is_printed,
    ".venv/bin/inferd model pull": check_nothing_is_printed,
}
"""How a command's output is checked, by how the command begins."""


def check_subtitles(directory: Path) -> None:
    written = {each.name: each.read_text() for each in directory.iterdir()}
    assert written.keys() == {"a.srt", "a.vtt"}
    assert written["a.srt"].startswith("1\n00:00:0")
    assert written["a.vtt"].startswith("WEBVTT\n")
    for text in written.values():
        cues = [line for line in text.splitlines()[1:] if "-->" not in line]
        assert words_of(" ".join(cues)) == SPOKEN


WRITTEN: Final[dict[str, Callable[[Path], None]]] = {
    ".venv/bin/inferd transcribe *": check_subtitles
}
"""How the folder is checked that a command writes."""
LOGGED: Final[dict[str, Frame]] = {
    '.venv/bin/inferd generate "What differs': {"backend": "vision", "n_images": 2},
    '.venv/bin/inferd generate "Who is speaking': {
        "backend": "vision",
        "audio_ms": SPOKEN_MS,
    },
}
"""What the log tells of a command whose output says nothing: the model is a random one."""

WITH_DAEMON: Final = [line for line in COMMANDS if line.startswith(tuple(CHECKS))]


def here(command: str) -> str:
    """Use the environment that runs the tests, wherever it is."""
    return command.replace(".venv/bin", str(Path(sys.executable).parent))


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
    """Put the README's backends together; a small one stands for the model that sees."""
    wanted = ("embedded:rerank", "mmproj", "embedded:speech")
    parts = [text for name in wanted for text in blocks("toml") if name in text]
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
    """A hub that has the README's repository."""
    [repository] = re.findall(r"model pull hf:([\w/.-]+)", "\n".join(COMMANDS))
    with running_hub() as hub:
        hub.add_repository(repository, {"m-Q4_K_M.gguf": b"GGUF" + b"w" * 100})
        yield hub


@pytest.fixture(scope="module")
def environ(scratch: Path, hub: Hub) -> dict[str, str]:
    """Nothing of the machine's own but its models, and the README's."""
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
def small(environ: dict[str, str], scratch: Path) -> Path:
    """A configuration of the same sockets with the last of its models.

    A doctor loads all that its configuration has.
    """
    path = scratch / "small.toml"
    [speech] = [text for text in blocks("toml") if "embedded:speech" in text]
    path.write_text(speech)
    return path


@pytest.fixture(scope="module")
def daemon(environ) -> Iterator[dict[str, str]]:
    """The README's daemon, as somebody starts it in another terminal."""
    with subprocess.Popen(
        ["bash", "-c", f"exec {here(SERVE)}"],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            directory = Path(environ["XDG_RUNTIME_DIR"]) / "inferd"
            wait_until_ready(
                directory,
                timeout_s=START_S,
                should_stop=lambda: process.poll() is not None,
            )
            yield environ
            process.terminate()
            assert process.wait(COMMAND_S) == 0
        finally:
            process.kill()


def run(command: list[str], environ: dict[str, str], cwd: Path) -> str:
    result = subprocess.run(
        command,
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def tells(log: Path, fields: Frame) -> bool:
    """Find a line of a request that was answered, with such fields."""
    lines = [line for line in log.read_text().splitlines() if line.endswith("}")]
    done = [each for each in map(json.loads, lines) if each["msg"] == "v2_request_done"]
    return any(fields.items() <= each.items() for each in done)


def test_every_command_of_the_readme_is_known_here():
    known = (*CHECKS, SERVE, SOCKETS, *BRIDGE, "make ")
    assert [line for line in COMMANDS if not line.startswith(known)] == []
    assert SERVE in COMMANDS
    assert len(WITH_DAEMON) == len(CHECKS)


def test_the_readme_s_targets_are_those_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    wanted = {
        target
        for line in (*COMMANDS, *PROMPTS)
        for target in re.findall(r"^(?:sudo )?make (\w+)$", line)
    }
    assert {"demo", "test", "install"} <= wanted
    assert wanted <= set(re.findall(r"^(\w+):", makefile, re.MULTILINE))


def test_the_readme_s_unit_is_the_one_that_is_installed():
    units = re.findall(r"systemctl .* (\w+)$", "\n".join(PROMPTS), re.MULTILINE)
    assert {*units} == {"inferd"}
    assert (ROOT / "systemd" / "inferd.service").is_file()


def sockets_line() -> str:
    [line] = [line for line in COMMANDS if line.startswith(SOCKETS)]
    return line


@pytest.mark.parametrize(
    "environ",
    [
        {"HOME": "/home/anna"},
        {"HOME": "/home/anna", "XDG_RUNTIME_DIR": ""},
        {"HOME": "/home/anna", "XDG_RUNTIME_DIR": "/run/user/1000"},
    ],
)
def test_the_readme_s_sockets_are_where_a_daemon_puts_them(environ):
    script = f'{sockets_line()}; printf %s "$sockets"'
    printed = subprocess.check_output(["/bin/sh", "-c", script], env=environ, text=True)
    assert Path(printed) == runtime_directory(environ)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("command", WITH_DAEMON)
def test_a_command_of_the_readme_works(daemon, small, files, command):
    [start] = [start for start in CHECKS if command.startswith(start)]
    if start == DOCTOR:
        daemon = daemon | {"INFERD_CONFIG": str(small)}
    script = f"{sockets_line()}\n{here(command)}"
    CHECKS[start](run(["bash", "-o", "pipefail", "-c", script], daemon, files))
    if start in WRITTEN:
        WRITTEN[start](files / "subtitles")
    if start in LOGGED:
        log = Path(daemon["INFERD_LOG_DIR"]) / "inferd.ndjson"
        assert eventually(lambda: tells(log, LOGGED[start]))


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_readme_s_python_works(daemon, program):
    assert run([sys.executable, "-c", program], daemon, ROOT).strip()
