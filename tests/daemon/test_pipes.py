"""The commands of docs/pipes.md, and what ends in the middle."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.daemon.fixtures import daemons
from tests.daemon.harness import (
    PATIENCE_S,
    DaemonProcess,
    clean_environ,
    eventually,
    mock,
)
from tests.documents.pages import commands
from tests.fakes.recordings import write_sound

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]
INFERD: Final = f"{sys.executable} -m inferd"
COMMANDS: Final = commands("docs/pipes.md")


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemons() as make:
        slow = mock(name="slow", tokens=["word "] * 10_000, token_delay_ms=20)
        words = mock(tokens=["Hel", "lo ", "wörld", "!"], transcribe=True)
        yield make({"backend": [words, slow]}).start()


@pytest.fixture
def shell(daemon: DaemonProcess, tmp_path: Path):
    """Run a line of the document as a shell does, in a directory with its files."""
    (tmp_path / "letter.txt").write_text("Dear all")
    (tmp_path / "texts.txt").write_text("a\nb\nc\n")
    (tmp_path / "prompts.jsonl").write_text('{"n": 1, "prompt": "a"}\n"b"\n')
    write_sound(tmp_path / "a.wav", 1.0).rename(tmp_path / "talk.wav")

    def run(command: str) -> subprocess.CompletedProcess[str]:
        at = f"--directory {daemon.directory}"
        line = re.sub(r"\binferd (\w+)", rf"{INFERD} \1 {at}", command)
        return subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=tmp_path,
            capture_output=True,
            env={**clean_environ(), "PYTHONPATH": str(ROOT)},
            timeout=PATIENCE_S,
            check=False,
            text=True,
        )

    return run


def lines_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.short_version
def test_the_commands_of_the_document_work(shell, tmp_path):
    printed = {}
    for command in COMMANDS:
        result = shell(command)
        assert (result.returncode, result.stderr) == (0, ""), (command, result)
        printed[command] = result.stdout
    generated, _, heard, plain, named, ranked, answers, speech, lists, *_ = (
        printed.values()
    )
    assert generated == "Hello wörld!\n"
    assert heard.split() == ["Hel", "lo", "wörld", "!"]
    assert [each["text"] for each in lines_of(plain)] == ["a red fox", "a blue whale"]
    assert lines_of(named)[0]["id"] == 7
    assert lines_of(ranked)[0]["text"] == "a red fox"
    assert [each["answer"] for each in lines_of(answers)] == ["Hello wörld!"] * 2
    [transcript] = lines_of(speech)
    assert (transcript["text"], transcript["stop_reason"]) == (
        "Hello wörld!",
        "end_turn",
    )
    assert lines_of(lists)[0]["results"][0]["index"] == 0  # type: ignore[index]
    saved = lines_of((tmp_path / "answers.jsonl").read_text())
    assert [each.get("n") for each in saved] == [1, None]
    assert np.load(tmp_path / "vectors.npy").shape == (3, 8)
    assert (tmp_path / "transcripts" / "talk.txt").exists()


def test_what_a_line_is_refused_for_is_its_result(shell, tmp_path):
    (tmp_path / "x.jsonl").write_text('{"messages": []}\n"fine"\n')
    result = shell("inferd generate --jsonl --jobs 2 < x.jsonl")
    first, second = lines_of(result.stdout)
    assert result.returncode == 2
    assert first["error"] == {
        "code": "invalid_request",
        "message": "invalid request: messages must not be empty",
    }
    assert second["answer"] == "Hello wörld!"
    (tmp_path / "no.wav").write_text("no sound")
    heard = shell("ls *.wav | inferd transcribe --jsonl")
    refused, _ = lines_of(heard.stdout)
    assert (heard.returncode, refused["error"]["code"]) == (2, "sound_error")  # type: ignore[index]
    broken = shell("""printf '"a"\\n1\\n' | inferd generate --jsonl""")
    assert (broken.returncode, len(lines_of(broken.stdout))) == (2, 1)
    assert broken.stderr.startswith("error: line 2: neither a string nor")


def test_an_interrupted_batch_is_gone_on_with(daemon: DaemonProcess, tmp_path: Path):
    output = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "inferd", "generate", "--jsonl", "--jobs", "2"]
    command += ["--directory", str(daemon.directory), "--output", str(output)]
    with subprocess.Popen(
        [*command, "--model", "slow", "--max-tokens", "2000"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environ(),
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"a\nb\nc\n")
        process.stdin.close()
        eventually(output.exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert output.read_text() == ""
    result = subprocess.run(
        [*command, "--resume", "--model", "mock"],
        input=b"a\nb\nc\n",
        capture_output=True,
        env=clean_environ(),
        timeout=PATIENCE_S,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert [each["text"] for each in lines_of(output.read_text())] == ["a", "b", "c"]
