"""Type a command of a document as somebody does who has a daemon, and look at what it prints."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from inferd.client.sync import wait_until_ready
from tests.documents.pages import ROOT, command

PROGRAMS: Final = Path(sys.executable).parent
SOCKETS: Final = command("docs/first-ten-minutes.md", "sockets=")
START_S: Final = 120.0
COMMAND_S: Final = 120.0


def here(line: str) -> str:
    """Use the environment that runs the tests, wherever it is."""
    return line.replace(".venv/bin", str(PROGRAMS))


def run(line: str, environ: Mapping[str, str], cwd: Path) -> str:
    """Run a line; give what it printed."""
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{SOCKETS}\n{here(line)}"],
        cwd=cwd,
        env={**environ, "PATH": f"{PROGRAMS}:{environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@contextmanager
def running(line: str, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Have a command run in another terminal; it ends with 0 on SIGTERM."""
    with subprocess.Popen(
        ["bash", "-c", f"exec {here(line)}"],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
            process.terminate()
            assert process.wait(COMMAND_S) == 0
        finally:
            process.kill()


@contextmanager
def serving(environ: Mapping[str, str]) -> Iterator[None]:
    """Have a daemon run, as the documents start one."""
    with running(command("README.md", "inferd serve"), environ) as process:
        wait_until_ready(
            Path(environ["XDG_RUNTIME_DIR"]) / "inferd",
            timeout_s=START_S,
            should_stop=lambda: process.poll() is not None,
        )
        yield


# --- what commands print --------------------------------------------------------------

Check = Callable[[str], None]


def words_of(text: str) -> str:
    """Give the words of a text alone."""
    return " ".join(re.findall(r"[a-z]+", text.lower()))


def has(*texts: str) -> Check:
    """Make a check that an output has texts."""

    def check(output: str) -> None:
        for text in texts:
            assert text in output

    return check


def is_nothing(output: str) -> None:
    """Check that nothing was printed."""
    assert output == ""


def is_something(output: str) -> None:
    """Check that something was printed."""
    assert output.strip()


def is_sound(output: str) -> None:
    """Check what the doctor of a daemon that runs prints."""
    assert "[ ok ] admin: the daemon is ready" in output
    assert "[FAIL]" not in output


def is_count(output: str) -> None:
    """Check a number of tokens."""
    assert int(output) > 10


def is_tokens(output: str) -> None:
    """Check the frames of an answer of v1."""
    *tokens, done = map(json.loads, output.splitlines())
    assert {frame["type"] for frame in tokens} == {"token"}
    assert done["type"] == "done"
    assert "Paris" in done["content"]


def is_person(output: str) -> None:
    """Check an answer that is an object."""
    frame, done = map(json.loads, output.splitlines())
    assert json.loads(frame["block"]["delta"]).keys() == {"name", "age"}
    assert done["structure_complete"] is True


def is_calls(output: str) -> None:
    """Check an answer that is calls of a tool."""
    *frames, done = map(json.loads, output.splitlines())
    calls = [frame["block"] for frame in frames]
    assert {call["name"] for call in calls} == {"get_weather"}
    assert {key for call in calls for key in call["input"]} == {"city"}
    assert done["stop_reason"] == "tool_use"
    assert done["structure_complete"] is True


def is_vector(output: str) -> None:
    """Check a line with a vector."""
    [line] = output.splitlines()
    assert len(json.loads(line)["embedding"]) == 4


def is_order(output: str) -> None:
    """Check lines with ranked documents."""
    assert [json.loads(line)["index"] for line in output.splitlines()] == [1, 0]


def is_chat_completion(output: str) -> None:
    """Check an answer of the bridge."""
    assert "Paris" in json.loads(output)["choices"][0]["message"]["content"]
