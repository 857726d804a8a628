"""The client in C++ and its C interface keep their contract, under sanitizers as well."""

import json
import re
import subprocess

import pytest

from protocol.player import settle
from tests.daemon.configuration import clean_environ, llamacpp, mock
from tests.daemon.fixtures import daemons
from tests.examples.built import HEADERS, HERE, built, compilers
from tests.examples.clients import COMMAND_S
from tests.model.tiny import write_tiny_model
from tests.vectors.scripted import frames, scripted

pytestmark = [pytest.mark.slow, pytest.mark.model]

RUN_S = 300.0
WORDS = ["Hel", "lo ", "wörld", "!"]
CASES = re.findall(
    r"^    CASE\((\w+)\),$", (HERE / "contract.cpp").read_text(), re.MULTILINE
)
SANITIZED = pytest.mark.short_version
DONE = {
    "type": "done",
    "usage": {"input_tokens": 5, "output_tokens": 7},
    "stop_reason": "end_turn",
    "structure_complete": True,
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The sockets of a daemon with a scripted backend, and a model for structures."""
    model = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    write_tiny_model(model, kind="q8_0")
    backends = [mock(tokens=WORDS, transcribe=True), llamacpp(model)]
    with daemons() as make:
        daemon = make({"backend": backends, "admission": {"max_queued": 64}}).start()
        settle(daemon.directory, timeout_s=COMMAND_S)
        yield daemon.directory


def run(program, *arguments):
    return subprocess.run(
        [program, *map(str, arguments)],
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


@pytest.mark.parametrize("compiler", compilers() or ["g++"])
@pytest.mark.parametrize(
    "variant",
    [
        "plain",
        pytest.param("thread", marks=SANITIZED),
        pytest.param("address", marks=SANITIZED),
    ],
)
def test_the_contract_is_kept(directory, compiler, variant):
    ended = run(built(compiler, HERE / "contract.cpp", variant), directory)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [f"ok {case}" for case in CASES]
    assert ended.returncode == 0


def answer(line):
    if json.loads(line).get("model") == "refused":
        refusal = {"type": "error", "code": "model_not_found", "message": "no"}
        return frames(refusal)
    text = {"type": "text", "delta": '{"a":1}'}
    return frames({"type": "frame", "block": text}, DONE)


@pytest.mark.parametrize("compiler", compilers() or ["g++"])
@pytest.mark.parametrize("variant", ["plain", pytest.param("address", marks=SANITIZED)])
def test_every_function_of_the_c_interface_works(short_dir, compiler, variant):
    program = built(compiler, HERE / "interface.c", variant)
    with scripted(short_dir, v2=answer):
        ended = run(program, short_dir)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("ok\n", "", 0)


@pytest.mark.parametrize("name", ["chat.cpp", "chat.c"])
def test_an_example_asks_and_prints(directory, name):
    ended = run(built("g++", HEADERS / name, "plain"), directory)
    assert (ended.stdout, ended.stderr) == ("Hello wörld!\n", "")
    failed = run(built("g++", HEADERS / name, "plain"), directory / "none")
    assert (failed.stdout, failed.stderr) == ("\n", "Connection refused\n")
    assert (ended.returncode, failed.returncode) == (0, 1)


def test_each_row_of_the_contract_names_a_test_that_runs():
    text = (HEADERS / "README.md").read_text()
    rows = re.findall(r"^\| (?!---|row).*\| (.+) \|$", text, re.MULTILINE)
    named = {
        name for row in rows for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", row)
    }
    assert len(rows) >= 30
    assert named <= {*CASES, "test_every_function_of_the_c_interface_works"}
    assert set(CASES) <= named
