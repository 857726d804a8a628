"""Models in several files, which are to be as if they were in one."""

import hashlib
import json
from pathlib import Path

import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.memory.plan import MemoryDemand
from inferd.worker.llama.backend import LlamaBackend
from tests.daemon.harness import MakeDaemon, llamacpp
from tests.fakes.command import Command
from tests.fakes.gguf_split import split_gguf
from tests.model.tiny import write_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.model]

SMALL = {"n_ctx": 256, "prompt_cache_mb": 0, "pause_mb": 0}


@pytest.fixture
def inferd(monkeypatch, capfd, tmp_path):
    """Run a command in this process, on a store of its own."""
    command = Command(monkeypatch, capfd, tmp_path)
    monkeypatch.setenv("INFERD_MODELS", str(tmp_path / "store"))
    return command


def test_a_split_model_writes_what_the_whole_one_writes(
    make_daemon: MakeDaemon, tiny_f32, inferd, tmp_path
):
    first, *_, last = split_gguf(tiny_f32, tmp_path, 3)
    assert inferd("model", "import", last, "--name", "me/parts").code == 0
    assert inferd("model", "verify", "me/parts").stdout == "me/parts: ok\n"
    models = {"whole": tiny_f32, "split": first, "stored": "me/parts"}
    backends = [
        llamacpp(model, **SMALL | {"name": name, "load": "demand"})
        for name, model in models.items()
    ]
    daemon = make_daemon(
        {"backend": backends, "admission": {"max_active": 1}},
        environ={"INFERD_MODELS": str(tmp_path / "store")},
    ).start()
    answers = {
        name: daemon.ask(
            "Tell me of the sea.", model=name, temperature=0, seed=0, max_tokens=16
        )[-1]["content"]
        for name in models
    }
    assert answers["whole"]
    assert set(answers.values()) == {answers["whole"]}


def test_a_part_that_is_not_what_it_should_be_stops_the_start(
    make_daemon: MakeDaemon, inferd, tiny_f32, tmp_path
):
    paths = split_gguf(tiny_f32, tmp_path, 3)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]

    def refusal(model: Path | str = paths[0], **fields) -> str:
        store = {"INFERD_MODELS": str(tmp_path / "store")}
        backend = llamacpp(model, **fields)
        return make_daemon({"backend": [backend]}, environ=store).refusal()

    wrong = refusal(sha256=[*digests[:2], "0" * 64])
    assert f"SHA-256 of {paths[2]} is {digests[2]}, expected 000" in wrong
    assert "the model is in 3 files, and sha256 has 1" in refusal(sha256=digests[0])
    assert inferd("model", "import", paths[0], "--name", "tiny").code == 0
    blob = tmp_path / "store/blobs" / digests[1]
    blob.unlink()
    blob.write_bytes(paths[1].read_bytes()[:-1] + b"X")
    assert f"expected {digests[1]}" in refusal("tiny")
    other = write_tiny_model(tmp_path / "other.gguf", seed=1)
    (tmp_path / "foreign").mkdir()
    foreign = split_gguf(other, tmp_path / "foreign", 3)
    foreign[2].replace(paths[2])
    assert f"SHA-256 of {paths[2]} is " in refusal(sha256=digests)
    split_gguf(other, tmp_path / "foreign", 4)[2].replace(paths[2])
    told = f"{paths[2]}: it is part 3 of 4, and the first file is part 1 of 3"
    assert told in refusal()
    paths[2].unlink()
    assert f"model file not found: {paths[2]}" in refusal()


def test_all_parts_count_as_memory_of_the_model(tiny_f32, tmp_path):
    def demand(path: Path) -> MemoryDemand:
        settings = LlamaCppSettings(name="m", model=str(path), n_ctx=64, n_threads=1)
        return LlamaBackend(settings, n_slots=1).predict(lambda _: None)

    whole, split = map(demand, (tiny_f32, split_gguf(tiny_f32, tmp_path, 4)[0]))
    assert split.weights == whole.weights > 0


def test_the_parts_of_a_model_are_shown_and_removed_as_one(inferd, tiny_f32, tmp_path):
    paths = split_gguf(tiny_f32, tmp_path, 2)
    assert inferd("model", "import", paths[0], "--name", "tiny").code == 0
    for name in ("tiny", paths[0]):
        shown = json.loads(inferd("model", "show", "--json", name).stdout)
        assert shown["facts"]["n_parts"] == 2
        assert shown["here"]["fits"]
        assert [each["n_bytes"] for each in shown["files"]] == [
            path.stat().st_size for path in paths
        ]
    assert inferd("model", "remove", "tiny").code == 0
    assert inferd("model", "prune", "--dry-run").stdout == ""
    assert [*(tmp_path / "store/blobs").iterdir()] == []
    paths[1].unlink()
    refused = inferd("model", "show", paths[0])
    assert f"{paths[1]} is not a file" in refused.stderr
