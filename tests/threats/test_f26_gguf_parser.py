import math
import struct

import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.whispercpp import WhisperCppSettings
from tests.fakes.command import Command
from tests.fakes.gguf_bytes import (
    ARRAY,
    TEXT,
    U32,
    array,
    gguf,
    pair,
    sound,
    tensor,
    with_number,
)
from tests.fakes.loading import failed_load
from tests.fakes.source import imports, tree_of
from tests.model.tiny import write_tiny_model
from tests.unit.worker.whisper.models import model_bytes

ATTACKS = {
    "counts that overflow": b"GGUF" + struct.pack("<IQQ", 3, 2**64 - 1, 2**64 - 1),
    "a text of all memory": gguf(
        pairs=[pair(b"general.name", TEXT, struct.pack("<Q", 2**63))]
    ),
    "an array whose bytes overflow": gguf(
        pairs=[pair(b"a", ARRAY, array(U32, 2**62, b""))]
    ),
    "a shape that overflows": gguf(tensors=[tensor(b"t", [2**33, 2**31])]),
    "an offset behind the end": gguf(tensors=[tensor(b"t", [1], offset=2**63)]),
    "a tensor without its end": gguf(tensors=[tensor(b"t", [8])], data=bytes(31)),
    "a type that there is not": gguf(tensors=[tensor(b"t", [8], kind=1000)]),
    "half a file": sound()[:300],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
async def test_a_file_that_attacks_its_parser_never_reaches_it(name, short_dir):
    path = short_dir / "m.gguf"
    path.write_bytes(ATTACKS[name])
    settings = LlamaCppSettings(name="chat", model=str(path))
    phases, reason = await failed_load(settings)
    assert reason.startswith(f"model file {path}: ")
    assert "mmap" not in phases


ABSURD = {
    "context_length": (0, 2**32 - 1),
    "embedding_length": (0, 2**32 - 1),
    "block_count": (0, 10**6),
    "attention.head_count": (3, 2**32 - 1),
    "attention.head_count_kv": (3, 2**31),
    "feed_forward_length": (2**32 - 1,),
    "vocab_size": (0, 2**32 - 1),
    "rope.dimension_count": (7, 2**31),
    "attention.layer_norm_rms_epsilon": (0.0, math.nan, math.inf, -1.0),
}
TOKENS = ("bos_token_id", "eos_token_id", "unknown_token_id")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    return write_tiny_model(path).read_bytes()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value"),
    [(f"llama.{key}", value) for key, values in ABSURD.items() for value in values]
    + [
        (f"tokenizer.ggml.{key}", value)
        for key in TOKENS
        for value in (356, 2**31, 2**32 - 1)
    ],
)
async def test_numbers_that_no_model_has_never_reach_the_library(
    key, value, tiny, short_dir
):
    path = short_dir / "m.gguf"
    path.write_bytes(with_number(tiny, key, value))
    phases, reason = await failed_load(LlamaCppSettings(name="chat", model=str(path)))
    assert reason.startswith(f"model file {path}: ")
    assert "mmap" not in phases


SPEECH = model_bytes()
SPEECH_ATTACKS = {
    "more layers than memory": SPEECH[:20] + struct.pack("<i", 2**30) + SPEECH[24:],
    "a vocabulary below its special tokens": SPEECH[:4] + bytes(4) + SPEECH[8:],
    "half a file": SPEECH[: len(SPEECH) // 2],
    "random bytes": SPEECH[:48] + bytes(range(256)) * 20,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPEECH_ATTACKS)
async def test_a_speech_model_that_attacks_its_loader_never_reaches_it(name, short_dir):
    path = short_dir / "m.bin"
    path.write_bytes(SPEECH_ATTACKS[name])
    settings = WhisperCppSettings(name="speech", model=str(path))
    phases, reason = await failed_load(settings)
    assert reason.startswith(f"model file {path}: ")
    assert phases == []


@pytest.mark.parametrize("content", [*ATTACKS.values(), *SPEECH_ATTACKS.values()])
def test_a_file_that_attacks_its_parser_is_not_shown_and_starts_no_worker(
    content, short_dir, monkeypatch, capfd
):
    def start(*_: object) -> None:
        raise AssertionError("a worker was asked")

    monkeypatch.setattr("inferd.cli.models.show.fit_alone", start)
    inferd = Command(monkeypatch, capfd, short_dir)
    path = short_dir / "m"
    path.write_bytes(content)
    code, _, stderr = inferd("model", "show", path)
    assert (code, stderr.count("\n")) == (1, 1)
    assert stderr.startswith(f"error: {path}: ")


PARTS = ("header", "reader", "consistency", "rules", "values", "parts")


def test_what_checks_a_file_runs_no_code_of_the_library():
    for module in (
        "worker/model_file.py",
        "worker/llama/gguf/files.py",
        "worker/whisper/model/file.py",
        *(f"models/gguf_header/{part}.py" for part in PARTS),
        *(f"models/whisper_header/{part}.py" for part in ("header", "tensors")),
    ):
        roots = {name.split(".")[0] for name in imports(tree_of(module))}
        assert not roots & {"llama_cpp", "numpy", "ctypes"}
