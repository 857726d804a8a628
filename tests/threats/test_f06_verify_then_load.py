import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.ipc.worker import Loaded, Loading
from inferd.worker.backend import LoadError
from tests.fakes.gguf_bytes import gguf
from tests.fakes.gguf_split import split_gguf
from tests.fakes.loading import failed_load
from tests.model.tiny import write_tiny_bert, write_tiny_model


@pytest.mark.slow
async def test_a_file_is_verified_at_each_load_before_the_library_reads_it(short_dir):
    path = short_dir / "m.gguf"
    path.write_bytes(gguf())
    sha256 = hashlib.sha256(gguf()).hexdigest()
    settings = LlamaCppSettings(name="chat", model=str(path), sha256=sha256)
    phases, reason = await failed_load(settings)
    assert phases.index("verify") < phases.index("mmap")
    assert "SHA-256" not in reason
    path.write_bytes(gguf() + b"x")
    phases, reason = await failed_load(settings)
    assert "mmap" not in phases
    assert f"expected {sha256}" in reason


def load_and_meddle(
    path, meddle, phase: str, *, is_pinned: bool = True, parts: Sequence[Path] = ()
) -> Loaded:
    """Load; let somebody else at the file once a phase is told for the first time."""
    from inferd.worker.llama.backend import LlamaBackend  # noqa: PLC0415  # native

    digests = [hashlib.sha256(each.read_bytes()).hexdigest() for each in (path, *parts)]
    settings = LlamaCppSettings(
        name="m",
        model=str(path),
        model_parts=tuple(map(str, parts)),
        sha256=tuple(digests) if is_pinned else None,
        n_ctx=64,
        n_threads=1,
    )
    waiting = [meddle]

    def report(told: object) -> None:
        if isinstance(told, Loading) and told.phase == phase and waiting:
            waiting.pop()()

    return LlamaBackend(settings, n_slots=1).load(report)


@pytest.fixture
def path(tmp_path):
    return write_tiny_model(tmp_path / "m.gguf")


@pytest.fixture
def other(tmp_path):
    return write_tiny_bert(tmp_path / "other.gguf")


@pytest.mark.model
@pytest.mark.parametrize("phase", ["checking_local", "verify", "mmap", "kv_cache"])
def test_what_a_link_names_by_then_is_not_what_is_loaded(path, other, tmp_path, phase):
    link, new = tmp_path / "link.gguf", tmp_path / "new"
    link.symlink_to(path)
    new.symlink_to(other)
    loaded = load_and_meddle(link, lambda: new.rename(link), phase)
    assert loaded.capabilities.model == "tiny-random"


@pytest.mark.model
@pytest.mark.parametrize("phase", ["checking_local", "verify", "mmap", "kv_cache"])
def test_a_file_in_its_place_is_not_loaded_either(path, other, phase):
    with pytest.raises(LoadError, match="changed while it was loaded"):
        load_and_meddle(path, lambda: other.rename(path), phase)


@pytest.mark.model
def test_without_a_hash_what_was_opened_is_loaded(path, other):
    loaded = load_and_meddle(path, lambda: other.rename(path), "mmap", is_pinned=False)
    assert loaded.capabilities.model == "tiny-random"


@pytest.mark.model
@pytest.mark.parametrize("phase", ["checking_local", "verify", "mmap", "kv_cache"])
def test_a_file_that_is_written_to_is_refused(path, phase):
    before = path.stat()

    def write() -> None:
        with path.open("r+b") as file:
            file.seek(-8, os.SEEK_END)
            file.write(b"\0" * 8)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(LoadError, match="changed while it was loaded"):
        load_and_meddle(path, write, phase)


@pytest.mark.model
@pytest.mark.parametrize("phase", ["checking_local", "verify", "mmap", "kv_cache"])
def test_a_further_name_has_the_file_loaded_and_hashed_by_another_worker(path, phase):
    with pytest.raises(LoadError) as caught:
        load_and_meddle(path, lambda: os.link(path, path.with_name("link")), phase)
    assert caught.value.is_changed_file
    assert not caught.value.is_broken_file
    loaded = load_and_meddle(path, lambda: None, phase)
    assert loaded.capabilities.model == "tiny-random"


@pytest.mark.model
def test_a_part_that_a_name_means_by_then_is_not_what_is_loaded(path, tmp_path):
    first, *others = split_gguf(path, tmp_path, 3)
    foreign = others[1].with_name("foreign")
    foreign.write_bytes(b"what no library loads")
    link = tmp_path / "link"
    link.symlink_to(others[1])
    foreign_link = tmp_path / "foreign-link"
    foreign_link.symlink_to(foreign)
    loaded = load_and_meddle(
        first, lambda: foreign_link.rename(link), "mmap", parts=[others[0], link]
    )
    assert loaded.capabilities.model == "tiny-random"


@pytest.mark.model
@pytest.mark.parametrize("phase", ["checking_local", "verify", "mmap", "kv_cache"])
def test_a_later_part_that_is_written_to_is_refused(path, tmp_path, phase):
    first, *others = split_gguf(path, tmp_path, 3)

    def write() -> None:
        with others[1].open("r+b") as file:
            file.seek(-8, os.SEEK_END)
            file.write(b"\0" * 8)

    with pytest.raises(LoadError, match="changed while it was loaded"):
        load_and_meddle(first, write, phase, parts=others)
