import json
from pathlib import Path

import pytest

from bench.lab import Lab, ModelFile
from bench.peers import raw

LAB = Lab(ModelFile("m", Path("/a/m.gguf")), frozenset(), n_threads=2)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Scripts in place of the tools: what they print is written by ``says``."""
    monkeypatch.setattr(raw, "tool", tmp_path.joinpath)

    def says(name, text, code=0):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
        script.chmod(0o700)

    return says


def test_the_rate_of_the_one_test_is_given(tools):
    tools("llama-bench", json.dumps([{"avg_ts": 101.5}]))
    assert raw.bench_rate(LAB, n_tokens=128) == 101.5


def test_the_line_of_the_one_batch_is_found_among_words(tools):
    tools("llama-batched-bench", 'some words\n\n{"speed_tg": 200.5, "pl": 8}\n')
    told = raw.batched(LAB, n_clients=8, n_prompt=48, n_tokens=96)
    assert told["speed_tg"] == 200.5


def test_a_tool_that_fails_ends_the_measure(tools):
    tools("llama-bench", "", code=3)
    with pytest.raises(SystemExit, match="llama-bench failed"):
        raw.bench_rate(LAB, n_tokens=128)


def test_a_command_is_noted_without_the_places_of_this_machine(tools):
    tools("llama-bench", json.dumps([{"avg_ts": 1}]))
    raw.bench_rate(LAB, n_prompt=9)
    assert any(
        line.startswith(
            "llama-bench --model m.gguf --threads 2 --n-gpu-layers 0 --n-prompt 9"
        )
        for line in LAB.commands
    )
