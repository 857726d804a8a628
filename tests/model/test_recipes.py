"""The recipes of `docs/recipes.md`, each in an environment with the program that it is for."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest

from tests.daemon.bridge import BridgeProcess, bridge_to
from tests.daemon.fixtures import daemons
from tests.daemon.harness import llamacpp, mock
from tests.documents.pages import texts
from tools.programs import program_environ, program_python

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.short_version]

ADDRESS: Final = "127.0.0.1:8313"
PROGRAM_S: Final = 300.0
"""Seconds that a program gets; importing one takes many."""


def blocks(language: str) -> list[str]:
    return texts("docs/recipes.md", language)


@pytest.fixture(scope="module")
def bridge() -> Iterator[BridgeProcess]:
    """A bridge to a chat model and an embedding model, and to a script for long prompts."""
    chat = llamacpp("embedded:chat", n_ctx=2048)
    embed = llamacpp("embedded:embed", name="embed")
    with daemons() as make:
        daemon = make(
            {"backend": [chat, embed, mock(name="script", tokens=["Hel", "lo"])]}
        ).start()
        with bridge_to(daemon) as made:
            yield made


def run(bridge: BridgeProcess, *command: str, **variables: str) -> str:
    """Run a command of a recipe at our bridge; give what it printed."""
    here = f"127.0.0.1:{bridge.port}"
    done = subprocess.run(
        [word.replace(ADDRESS, here) for word in command],
        env={**program_environ(), **variables},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "line", [line for block in blocks("sh") for line in block.splitlines()]
)
def test_a_command_is_answered(bridge, line):
    answer = json.loads(run(bridge, "sh", "-c", line))
    assert answer.keys() & {"data", "choices", "content"}
    assert "error" not in answer


@pytest.mark.parametrize("program", blocks("python"))
def test_a_program_prints_an_answer(bridge, program):
    python = program_python("frameworks")
    assert run(bridge, str(python), "-W", "ignore", "-c", program).strip()


def test_llm_finds_the_model_that_its_file_names(bridge, tmp_path):
    [models, _] = blocks("yaml")
    [prompt, _] = blocks("console")
    file = tmp_path / "extra-openai-models.yaml"
    file.write_text(models.replace(ADDRESS, f"127.0.0.1:{bridge.port}"))
    home = {"LLM_USER_PATH": str(tmp_path)}
    line = f"{typed(prompt, 'llm')} -o max_tokens 20"
    assert run(bridge, "sh", "-c", line, **home, **path_of("llm")).strip()


def test_continue_asks_with_its_tools_and_prints_the_answer(bridge, tmp_path):
    [_, config] = blocks("yaml")
    [_, prompt] = blocks("console")
    here = config.replace(ADDRESS, f"127.0.0.1:{bridge.port}")
    file = tmp_path / "config.yaml"
    file.write_text(here.replace("model: chat", "model: script"))
    line = typed(prompt, "cn").replace("config.yaml", str(file))
    home = {
        "HOME": str(tmp_path),
        "CONTINUE_GLOBAL_DIR": str(tmp_path / "continue"),
        "CONTINUE_TELEMETRY_ENABLED": "0",
    }
    said = run(
        bridge, "sh", "-c", f"cd {tmp_path} && {line}", **home, **path_of("continue")
    )
    assert said.strip() == "Hello"


def typed(block: str, program: str) -> str:
    """Take a command out of what is typed."""
    command = block.removeprefix("$ ").strip()
    assert command.startswith(f"{program} ")
    return command


def path_of(environment: str) -> dict[str, str]:
    """Give the variable by which the programs of an environment are found."""
    python = program_python(environment)
    scripts = python.parents[1] / "node_modules" / ".bin"
    return {
        "PATH": os.pathsep.join([str(python.parent), str(scripts), os.environ["PATH"]])
    }
