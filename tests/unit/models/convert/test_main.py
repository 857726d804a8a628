import json
import os
import re
import subprocess
import sys
from pathlib import Path

import gguf
import pytest

import inferd.models
from tests.unit.models.convert.files import (
    N_HEADS,
    VOCABULARY,
    safetensors,
    weights,
)

MODELS = Path(inferd.models.__file__).parent


def convert(*arguments):
    """Run the converter as the builder does: its own package, and nothing of ours."""
    return subprocess.run(
        [sys.executable, "-P", "-B", "-m", "convert", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(MODELS)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_directory_of_sources_becomes_a_file(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    config = {"num_attention_heads": N_HEADS, "layer_norm_eps": 1e-12}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(safetensors(weights()))
    result = convert("all-minilm-l6-v2", tmp_path, tmp_path / "out.gguf")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    reader = gguf.GGUFReader(tmp_path / "out.gguf")
    assert reader.fields["general.name"].contents() == "all-MiniLM-L6-v2"


@pytest.mark.slow
def test_an_unknown_recipe_is_refused(tmp_path):
    result = convert("bread", tmp_path, tmp_path / "out.gguf")
    assert result.returncode == 2
    assert "invalid choice: 'bread'" in result.stderr


@pytest.mark.slow
def test_a_damaged_source_is_one_line(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(safetensors(weights())[:-1])
    result = convert("all-minilm-l6-v2", tmp_path, tmp_path / "out.gguf")
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(r"error: model\.safetensors: .+\n", result.stderr)
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.slow
def test_the_converter_imports_nothing_of_the_rest():
    look = (
        "import sys, convert.__main__; print(*{n.split('.')[0] for n in sys.modules})"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", look],
        env=os.environ | {"PYTHONPATH": str(MODELS)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    imported = set(result.stdout.split())
    assert {"convert", "gguf", "numpy", "onnx", "safetensors"} <= imported
    assert not imported & {"inferd", "torch"}
