import json
import os
import pty
import re
import select
import subprocess
import sys
import unicodedata
from contextlib import suppress
from functools import cache, partial

import pytest

from tests.daemon.configuration import clean_environ, llamacpp, to_toml
from tests.daemon.preloaded import CLIENTS, COMMAND, DAEMON, DOCTOR, Preloaded
from tests.fakes.gguf_bytes import TEXT, gguf, pair, text as gguf_text
from tests.fakes.recordings import tone, wav
from tests.vectors.scripted import Last, frames, says, scripted

pytestmark = pytest.mark.slow

MODEL_NAME = "m\x1b[2J\u202e\n.gguf"
FORGED = "error: FORGED"
HOSTILE = (
    f"x\x1b]0;title\x07\x1b[2J\x9b31m\r\b\x00\x7f\u202e\u2066\u200f\u200b\u2028{FORGED}"
    f"\x85{FORGED}\n{FORGED}\r\n{FORGED}"
    "\u3164\u2800\U000e0100\ufe0f"
)
BLANK = set("\u3164\u2800\U000e0100\ufe0f")
"""What takes place, or none, and shows nothing."""
FILE_NAME = HOSTILE.replace("\x00", "") + "\udcff"
PATIENCE_S = 90.0
OURS = re.compile(rb"\r\x1b\[2K|\r\n")
"""What commands send themselves: the ticker's, and a terminal's end of a line."""

BLOCK = {"type": "text", "delta": HOSTILE, "start_ms": 0, "end_ms": 9, "extra": HOSTILE}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}
ERROR = {"type": "error", "id": "cli", "code": HOSTILE, "message": HOSTILE}
STATUS = {"id": "admin", "type": "status"}
PATHS = {"phase": HOSTILE, "path": HOSTILE, "reason": HOSTILE, "backend": HOSTILE}
ABLE = {
    "status": "capabilities",
    "backend": HOSTILE,
    "model": HOSTILE,
    "accelerator": HOSTILE,
    "gpu_layers": 0,
    "daemon_version": HOSTILE,
    "n_ctx": 1,
    HOSTILE: HOSTILE,
    "cpu_variant": HOSTILE,
}
ANSWERS = {
    "v1": says(
        {"type": "status", "id": "cli", "status": HOSTILE, "position": 1},
        {"type": "status", "id": "cli", "status": "queued", "position": 1},
        {"type": "token", "id": "cli", "content": HOSTILE, "extra": HOSTILE},
        {
            "type": "done",
            "id": "cli",
            "content": HOSTILE,
            "usage": USAGE,
            "stop_reason": HOSTILE,
            "backend": HOSTILE,
        },
    ),
    "v2": says(
        {"type": "status", "id": "cli", "status": "partial", "text": HOSTILE},
        {"type": "frame", "id": "cli", "block": BLOCK},
        {
            "type": "done",
            "id": "cli",
            "backend": HOSTILE,
            "usage": {"input_tokens": 1, "output_tokens": 1},
            "stop_reason": HOSTILE,
            "detail": HOSTILE,
        },
    ),
    "admin": Last(
        frames(
            STATUS | ABLE,
            {**STATUS, "status": HOSTILE, **PATHS},
            {
                "id": "admin",
                "type": "reply",
                "command": "",
                "ok": False,
                "error": HOSTILE,
            },
        )
    ),
}
FAILURES = {
    **dict.fromkeys(("v1", "v2", "embed", "rerank"), says(ERROR)),
    "admin": Last(
        frames({"type": "reply", "command": "", "ok": False, "error": HOSTILE})
    ),
}
NONSENSE = {
    **dict.fromkeys(("v1", "v2", "embed", "rerank"), says(ERROR | {"id": HOSTILE})),
    "admin": Last(frames({"type": HOSTILE, "status": 5, HOSTILE: HOSTILE})),
}
REPLY = {"id": "admin", "type": "reply", "command": "reload", "ok": True}
COMMANDS = (
    ["generate", "hi"],
    ["generate", "hi", "--json", "--progress"],
    ["generate", "hi", "--count"],
    ["embed", "hi"],
    ["rerank", "hi", "you"],
    ["transcribe", FILE_NAME],
    ["transcribe", FILE_NAME, "--format", "srt"],
    ["transcribe", FILE_NAME, "--format", "json"],
    ["transcribe", FILE_NAME + "none"],
    ["transcribe", "good.wav", "--output", FILE_NAME],
    ["generate", "hi", "--image", FILE_NAME],
    ["status"],
    ["status", "--json"],
    ["status", "--watch"],
    ["status", "--watch", "--json"],
    ["drain"],
    ["reload"],
    ["cancel", HOSTILE.replace("\x00", "")],
)


@cache
def preloaded():
    return Preloaded(clean_environ(), (*CLIENTS, *DAEMON, *DOCTOR))


def on_terminal(arguments, cwd, **environ):
    """Run a command whose stdout and stderr are a terminal; give all it wrote there."""
    environ = clean_environ() | {"HOME": str(cwd), "NO_COLOR": "1", **environ}
    ours, theirs = pty.openpty()
    process = preloaded().start([*COMMAND, *arguments], environ, theirs, theirs, cwd)
    os.close(theirs)
    written = b"".join(iter(partial(_read, ours, process), b""))
    os.close(ours)
    process.wait()
    return written


def _read(terminal, process):
    if not select.select([terminal], [], [], PATIENCE_S)[0]:
        process.kill()
        pytest.fail("the command neither writes nor ends")
    with suppress(OSError):  # nobody has the other side any more
        return os.read(terminal, 65536)
    return b""


def assert_tame(written, *, is_prose=False):
    """See that nothing steers, and that no line is not ours."""
    text = OURS.sub(b"\n", written).decode()
    steering = {
        each
        for each in text
        if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    assert steering <= {"\n"}
    assert not re.search(rf"^{FORGED}", text, re.MULTILINE) or is_prose
    assert text.replace("\n", "").isprintable() or is_prose
    assert not BLANK & set(text) or is_prose


@pytest.fixture
def place(short_dir):
    """A directory with recordings, one of which has a hostile name."""
    for name in (FILE_NAME, "good.wav"):
        (short_dir / name).write_bytes(wav(tone(0, 16_000, 16_000)))
    return short_dir


@pytest.mark.parametrize(
    "answers", [ANSWERS, FAILURES, NONSENSE], ids=["answers", "failures", "nonsense"]
)
@pytest.mark.parametrize("arguments", COMMANDS, ids=ascii)
def test_a_daemon_steers_no_terminal(place, arguments, answers):
    with scripted(place, **answers):
        written = on_terminal([*arguments, "--directory", "."], place)
    assert written != b""
    is_prose = arguments[0] in ("generate", "transcribe") and answers is ANSWERS
    assert_tame(written, is_prose=is_prose)


@pytest.mark.parametrize("name", ["applied", "needs_restart"])
def test_what_a_reload_changed_is_told_in_one_line(place, name):
    with scripted(place, admin=says(REPLY | {name: [HOSTILE, HOSTILE]})):
        written = on_terminal(["reload", "--directory", "."], place)
    assert written.count(b"\\x1b[2J") == 2
    assert written.count(b"\n") == 1
    assert_tame(written)


@pytest.mark.parametrize(
    "arguments", [["status"], ["reload"], ["generate", "hi"]], ids=ascii
)
def test_words_steer_nothing_either_where_they_are_kept_for_later(place, arguments):
    with scripted(place, **ANSWERS | FAILURES):
        ended = subprocess.run(
            [sys.executable, "-m", "inferd", *arguments, "--directory", "."],
            cwd=place,
            env=clean_environ() | {"HOME": str(place)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert b"FORGED" in ended.stdout + ended.stderr
    assert_tame(ended.stdout)
    assert_tame(ended.stderr)


def test_what_is_asked_for_is_exact_where_it_is_piped_on(place):
    with scripted(place, **ANSWERS):
        command = [sys.executable, "-m", "inferd", "generate", "hi", "--directory", "."]
        answer = subprocess.check_output(command, cwd=place, env=clean_environ())
        frames_ = subprocess.check_output(
            [*command, "--json"], cwd=place, env=clean_environ()
        )
    assert answer.decode() == HOSTILE + "\n"
    assert json.loads(frames_.splitlines()[1])["content"] == HOSTILE


def test_json_on_a_terminal_is_the_same_json(place):
    with scripted(place, **ANSWERS):
        written = on_terminal(["generate", "hi", "--json", "--directory", "."], place)
    _, token, done = (json.loads(line) for line in written.splitlines())
    assert token["content"] == done["content"] == HOSTILE


@pytest.mark.parametrize(
    "arguments",
    [
        [FILE_NAME],
        ["status", FILE_NAME],
        ["generate", "hi", f"--seed={FILE_NAME}"],
        ["transcribe", "a", f"--format={FILE_NAME}"],
        ["generate", "hi", "--directory", FILE_NAME],
        ["serve", "--log-level", FILE_NAME],
        ["serve", "--config", FILE_NAME + "none"],
        ["serve", "--config", FILE_NAME],
        ["serve", "--model", FILE_NAME + "none"],
        ["doctor", "--config", FILE_NAME + "none"],
        ["doctor", "--config", "names.toml"],
        ["serve", "--config", "names.toml"],
    ],
    ids=ascii,
)
def test_what_is_typed_or_configured_steers_no_terminal(place, arguments):
    (place / "names.toml").write_text(
        f"[[backend]]\nname = {json.dumps(HOSTILE)}\nkind = {json.dumps(HOSTILE)}\n"
        f"{json.dumps(HOSTILE)} = 1\n"
    )
    written = on_terminal(arguments, place, INFERD_TRUST_UID="")
    assert written != b""
    assert_tame(written)


@pytest.mark.model
@pytest.mark.parametrize("command", ["serve", "doctor"])
@pytest.mark.parametrize("kind", ["architecture", "template", "garbage"])
def test_a_model_file_steers_no_terminal(place, command, kind):
    said = HOSTILE.encode()
    pairs = {
        "architecture": [pair(b"general.architecture", TEXT, gguf_text(said))],
        "template": [
            pair(b"general.architecture", TEXT, gguf_text(b"llama")),
            pair(b"general.name", TEXT, gguf_text(said)),
            pair(said, TEXT, gguf_text(said)),
        ],
        "garbage": [pair(said, 99, said)],
    }[kind]
    (place / MODEL_NAME).write_bytes(gguf(pairs=pairs))
    config = {
        "listen": {"directory": str(place / "run")},
        "backend": [llamacpp(place / MODEL_NAME)],
    }
    (place / "config.toml").write_text(to_toml(config))
    written = on_terminal([command, "--config", "config.toml"], place)
    assert b"\\x1b[2J" in written
    assert_tame(written)


def test_a_bug_is_told_in_lines_that_are_seen_to_be_its_own(place):
    program = (
        "import sys, inferd.cli, inferd.cli.commands.drain as drain\n"
        "text = sys.argv.pop()\n"
        "def run(arguments): raise ValueError(text)\n"
        "drain.run = run\n"
        "sys.argv += ['drain']\n"
        "sys.exit(inferd.cli.main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, FILE_NAME],
        capture_output=True,
        env=clean_environ(),
        check=False,
    )
    assert ended.returncode == 1
    assert b"Traceback" in ended.stderr
    assert b"ValueError: x\\x1b]0;title" in ended.stderr
    assert_tame(ended.stderr)
