"""inferd model list and pull with --at: of the remote engine that a backend asks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from inferd.cli import main
from tests.daemon.configuration import to_toml
from tests.daemon.harness import MakeDaemon, mock
from tests.fakes.remote_engine import RemoteEngine, sends, serving, status

pytestmark = pytest.mark.slow

KEY: Final = "sk-at-0123456789"
TAGS: Final = {"models": [{"name": "qwen3:latest"}, {"name": "gemma3:4b"}]}
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n"
LAYER: Final = {"digest": "sha256:a", "total": 200}
"""As in Ollama's ``docs/api.md``, "Pull a Model"."""
PULLED: Final = [
    {"status": "pulling manifest"},
    {"status": "pulling a", **LAYER, "completed": 100},
    {"status": "pulling a", **LAYER, "completed": 200},
    {"status": "success"},
]


def lines(*objects: object) -> bytes:
    return HEAD + b"".join(json.dumps(each).encode() + b"\n" for each in objects)


@pytest.fixture(scope="module")
def engine() -> Iterator[RemoteEngine]:
    with serving() as engine:
        yield engine


@pytest.fixture
def ask(engine, short_dir, monkeypatch, capfd):
    """Type a command; give its exit code and what it printed."""
    monkeypatch.setenv("AT_KEY", KEY)
    far: dict[str, Any] = {
        "base_url": engine.url,
        "model": "m",
        "api_key_env": "AT_KEY",
    }
    backends = [{"name": "o", "kind": "ollama", **far}]
    backends += [{"name": "v", "kind": "openai", **far}, mock()]
    path = short_dir / "config.toml"
    path.write_text(to_toml({"backend": backends}))

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setenv("AT_KEY", KEY)
        command = ["inferd", "model", *words, "--config", str(path)]
        monkeypatch.setattr("sys.argv", command)
        code = main()
        out, err = capfd.readouterr()
        assert KEY not in out + err
        return code, out, err

    return run


def test_the_models_of_a_remote_are_listed(ask, engine):
    engine.script = sends(status(200, TAGS))
    code, out, _ = ask("list", "--at", "o")
    assert (code, out.split()) == (0, ["qwen3", "gemma3:4b", "qwen3:latest"])
    head, _ = engine.requests[-1]
    assert head.startswith(b"GET /api/tags ")
    engine.script = sends(status(200, {"data": [{"id": "m"}]}))
    code, out, _ = ask("list", "--at", "v", "--json")
    assert (code, json.loads(out)) == (0, {"name": "m", "at": "v"})


def test_an_ollama_pulls_a_model_to_where_it_is(ask, engine):
    engine.script = sends(lines(*PULLED))
    code, _, err = ask("pull", "--at", "o", "qwen3:0.6b")
    assert (code, err) == (0, "qwen3:0.6b is at o\n")
    head, body = engine.requests[-1]
    assert head.startswith(b"POST /api/pull ")
    assert json.loads(body) == {"model": "qwen3:0.6b", "stream": True}


FAILURES: Final = {
    "file does not exist": lines({"error": "pull model manifest: file does not exist"}),
    "ended in its middle": lines(*PULLED[:2]),
    "not part of an answer": HEAD + b"no json\n",
    "refuses the key": status(401, {"error": KEY}),
}


@pytest.mark.parametrize("reason", FAILURES)
def test_a_pull_that_fails_says_why(ask, engine, reason):
    engine.script = sends(FAILURES[reason])
    code, _, err = ask("pull", "--at", "o", "x")
    assert code != 0
    assert reason in err


def test_what_cannot_be_asked_for_is_refused(ask):
    for words, reason in {
        (
            "list",
            "--at",
            "mock",
        ): "no backend mock asks a remote engine; those are: o, v",
        ("pull", "--at", "v", "x"): "cannot be told to pull models",
        ("pull", "--at", "o", "x", "--name", "y"): "--name is for the store here",
    }.items():
        code, _, err = ask(*words)
        assert code != 0
        assert reason in err


def test_a_daemon_lists_the_models_of_another_one(
    make_daemon: MakeDaemon, ask, short_dir
):
    behind = make_daemon({"backend": [mock(aliases=["other"])]}).start()
    path: Path = short_dir / "config.toml"
    url = f"sockets:{behind.directory}"
    far = {"name": "d", "kind": "inferd", "base_url": url, "model": "mock"}
    path.write_text(to_toml({"backend": [far]}))
    code, out, _ = ask("list", "--at", "d")
    assert (code, out.split()) == (0, ["mock", "other"])
