import hashlib
import os
import re
from io import FileIO
from pathlib import Path

import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.models.gguf_header.header import GgufHeader, read_header
from inferd.worker.backend import LoadError
from inferd.worker.llama.gguf.files import ModelFile, open_files
from inferd.worker.model_file import check_sha256
from tests.fakes.gguf_bytes import TEXT, gguf, pair, text
from tests.fakes.gguf_split import part_names, split_keys

BLOCK_BYTES = 8 * 1024 * 1024
EMPTY = gguf()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gguf"


def of_parts(n_parts: int, part: int = 0) -> bytes:
    return gguf(pairs=split_keys(part, n_parts, n_tensors=0))


def write_parts(directory: Path, n_parts: int = 3) -> list[Path]:
    paths = [directory / name for name in part_names("m", n_parts)]
    for part, path in enumerate(paths):
        path.write_bytes(of_parts(n_parts, part))
    return paths


def test_a_file_is_read_by_its_descriptor_whatever_its_path_names_by_then(path):
    path.write_bytes(EMPTY + b"this")
    file = ModelFile(path)
    path.with_name("other").write_bytes(EMPTY + b"that")
    path.with_name("other").rename(path)
    [place] = file.library_paths
    assert Path(place.decode()).read_bytes() == EMPTY + b"this"


def test_a_link_is_followed(path):
    path.write_bytes(EMPTY)
    path.with_name("link").symlink_to(path)
    assert ModelFile(path.with_name("link")).path == path.with_name("link")


def test_a_file_is_closed_with_what_holds_it(path):
    path.write_bytes(EMPTY)
    file = ModelFile(path)
    [fd] = file.fds
    del file
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


@pytest.mark.parametrize("content", [b"", b"GGUF", EMPTY[:23], b"<html>" * 9])
def test_a_file_that_is_not_gguf_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(LoadError, match=f"^model file {path}: "):
        ModelFile(path)


def test_a_file_for_another_kind_of_backend_is_told_so(path):
    path.write_bytes(b"lmgg" + bytes(20))
    reason = 'not a GGUF file but a whisper.cpp model file, for kind = "whispercpp"'
    with pytest.raises(LoadError, match=reason):
        ModelFile(path)


def test_a_file_that_is_not_there_is_named(path):
    for missing in (path, path.parent):
        with pytest.raises(LoadError, match=f"^model file not found: {missing}$"):
            ModelFile(missing)


def test_content_that_no_other_attempt_can_load_is_told_from_what_may_pass(path):
    attempts: list[bool] = []
    for content in (None, EMPTY[:23], b"lmgg" + bytes(20)):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(LoadError) as caught:
            ModelFile(path)
        attempts.append(caught.value.is_broken_file)
    path.write_bytes(EMPTY)
    with pytest.raises(LoadError) as caught:
        check_sha256(ModelFile(path), "0" * 64, lambda: None)
    assert [*attempts, caught.value.is_broken_file] == [False, True, True, True]


def test_a_pipe_is_not_waited_for(path):
    os.mkfifo(path)
    with pytest.raises(LoadError, match="not found"):
        ModelFile(path)


def test_a_path_that_cannot_be_looked_at_is_one_line(path):
    with pytest.raises(LoadError, match="File name too long"):
        ModelFile(path.with_name("x" * 300))


def opened_by(file: ModelFile) -> list[Path]:
    return [Path(place.decode()).readlink() for place in file.library_paths]


def test_all_parts_of_a_model_are_opened_in_their_order(tmp_path):
    paths = write_parts(tmp_path)
    assert opened_by(ModelFile(paths[0])) == paths
    paths[2].unlink()
    with pytest.raises(LoadError, match=f"not found: {paths[2]}$"):
        ModelFile(paths[0])


def test_parts_of_other_names_are_opened_where_they_are_named(tmp_path):
    blobs = [
        path.rename(path.with_name(f"b{n}"))
        for n, path in enumerate(write_parts(tmp_path))
    ]
    first, *others = map(str, blobs)
    settings = LlamaCppSettings(name="m", model=first, model_parts=tuple(others))
    assert opened_by(open_files(settings).model) == blobs
    swapped = LlamaCppSettings(name="m", model=first, model_parts=(first, others[1]))
    reason = f"{first}: it is part 1 of 3, and part 2 belongs in its place"
    with pytest.raises(LoadError, match=reason) as caught:
        open_files(swapped)
    assert caught.value.is_broken_file


def test_each_part_has_the_hash_that_it_must_have(tmp_path):
    paths = write_parts(tmp_path)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
    file = ModelFile(paths[0])
    check_sha256(file, digests, lambda: None)
    for wrong in range(3):
        given = [*digests]
        given[wrong] = "0" * 64
        with pytest.raises(LoadError, match=f"^SHA-256 of {paths[wrong]} is "):
            check_sha256(file, given, lambda: None)
    for too_few in (digests[0], digests[:2]):
        with pytest.raises(LoadError, match="in 3 files, and sha256 has [12]; allowed"):
            check_sha256(file, too_few, lambda: None)


@pytest.mark.parametrize("part", [0, 2])
def test_a_part_that_is_written_to_is_noticed(tmp_path, part):
    paths = write_parts(tmp_path)
    file = ModelFile(paths[0])
    paths[part].write_bytes(of_parts(3, part) + b"X")
    with pytest.raises(LoadError, match="changed while it was loaded"):
        file.refuse_if_changed()


@pytest.mark.parametrize("part", [0, 2])
def test_what_is_written_while_headers_are_read_is_noticed(tmp_path, monkeypatch, part):
    paths = write_parts(tmp_path)
    headers: list[GgufHeader] = []

    def read_and_write(file: FileIO, n_bytes: int) -> GgufHeader:
        header = read_header(file, n_bytes)
        if len(headers) == part:
            with paths[part].open("ab") as other:
                other.write(b"X")
        headers.append(header)
        return header

    monkeypatch.setattr("inferd.worker.llama.gguf.files.read_header", read_and_write)
    file = ModelFile(paths[0])
    assert len(headers) == 3
    with pytest.raises(LoadError, match="changed while it was loaded"):
        file.refuse_if_changed()


@pytest.mark.parametrize(
    ("name", "part", "reason"),
    [
        ("m.gguf", 0, "must end in -00001-of-00003.gguf"),
        ("m-00002-of-00003.gguf", 1, "it is part 2 of 3: name the first part"),
        ("m-00001-of-00002.gguf", 0, "must end in -00001-of-00003.gguf"),
    ],
)
def test_a_part_that_is_not_the_first_is_refused(tmp_path, name, part, reason):
    (tmp_path / name).write_bytes(of_parts(3, part))
    with pytest.raises(LoadError, match=reason):
        ModelFile(tmp_path / name)


def test_a_model_in_too_many_parts_is_refused(path):
    path.write_bytes(of_parts(257))
    with pytest.raises(LoadError, match="257 parts, over 256"):
        ModelFile(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "model file not found"),
        (b"notes", "model file: not a GGUF file"),
        (of_parts(257), "model file: 257 parts, over 256"),
        (
            of_parts(3),
            "model file: it is the first of 3 parts, so its name must end in",
        ),
        (EMPTY, "model file: its SHA-256 is not the expected one"),
    ],
)
def test_clients_do_not_see_the_name_of_a_refused_file(path, content, reason):
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadError, match=f"{path}") as caught:
        check_sha256(ModelFile(path), "0" * 64, lambda: None)
    assert caught.value.reason.startswith(reason)
    assert caught.value.is_broken_file == (content is not None)
    assert str(path.parent) not in caught.value.reason


def test_a_file_has_the_hash_that_it_must_have(path):
    path.write_bytes(EMPTY + b"weights")
    file = ModelFile(path)
    check_sha256(file, hashlib.sha256(EMPTY + b"weights").hexdigest(), lambda: None)
    other = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(LoadError, match=f"^SHA-256 of {path} is .*, expected {other}$"):
        check_sha256(file, other, lambda: None)


@pytest.mark.parametrize(("n_more", "n_signs"), [(0, 1), (1, 1), (BLOCK_BYTES, 2)])
def test_each_block_that_is_hashed_is_a_sign_of_life(path, n_more, n_signs):
    path.write_bytes(EMPTY)
    os.truncate(path, len(EMPTY) + n_more)
    signs: list[None] = []
    expected = hashlib.sha256(EMPTY + bytes(n_more)).hexdigest()
    check_sha256(ModelFile(path), expected, lambda: signs.append(None))
    assert len(signs) == n_signs


def test_a_file_that_is_written_to_is_noticed_whatever_its_times_say(path):
    path.write_bytes(EMPTY + b"weights")
    before = path.stat()
    file = ModelFile(path)
    file.refuse_if_changed()
    with path.open("r+b") as opened:
        opened.seek(-1, os.SEEK_END)
        opened.write(b"X")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(LoadError, match="changed while it was loaded"):
        file.refuse_if_changed()


def test_all_files_that_settings_name_are_opened(path):
    path.write_bytes(EMPTY)
    settings = LlamaCppSettings(name="m", model=str(path))
    assert len(open_files(settings).fds) == 1
    with_draft = LlamaCppSettings(
        name="m", model=str(path), speculation="draft", draft_model=str(path)
    )
    assert len(open_files(with_draft).fds) == 2


def of_architecture(name: str) -> bytes:
    return gguf(pairs=[pair(b"general.architecture", TEXT, text(name.encode()))])


def with_projector(path, content: bytes | None) -> LlamaCppSettings:
    path.write_bytes(EMPTY)
    projector = path.with_name("projector.gguf")
    if content is not None:
        projector.write_bytes(content)
    return LlamaCppSettings(name="m", model=str(path), mmproj=str(projector))


def test_a_projector_is_opened_beside_the_model(path):
    files = open_files(with_projector(path, of_architecture("clip")))
    assert len(files.fds) == 2
    assert files.projector is not None
    assert files.projector.kind == "mmproj file"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "mmproj file not found"),
        (b"notes", "mmproj file: not a GGUF file"),
        (of_architecture("clip")[:40], "mmproj file: it ends after .* amid its header"),
        (
            of_architecture("llama"),
            "mmproj file: its architecture is 'llama'; that of a projector is 'clip'",
        ),
        (EMPTY, "mmproj file: its architecture is ''; that of a projector is 'clip'"),
    ],
)
def test_a_file_that_is_not_a_projector_is_refused(path, content, reason):
    with pytest.raises(LoadError, match="projector.gguf") as caught:
        open_files(with_projector(path, content))
    assert re.fullmatch(reason, caught.value.reason)
    assert str(path.parent) not in caught.value.reason
    assert caught.value.is_broken_file == (content is not None)
