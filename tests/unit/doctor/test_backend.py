import hashlib
import os
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from inferd.config.kinds.kind import InDaemon, RequiredFile
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.kinds.mock import MockSettings
from inferd.config.kinds.openai import OpenAiSettings
from inferd.config.kinds.registry import KINDS
from inferd.config.kinds.whispercpp import WhisperCppSettings
from inferd.config.settings import BackendSettings, LimitSettings
from inferd.doctor.backend import (
    broken_hint,
    check_files,
    check_in_daemon,
    check_key_file,
    check_remote,
    check_worker,
)
from inferd.doctor.check import Finding, Verdict
from inferd.doctor.memory import Forecast
from inferd.memory.plan import MemoryDemand, MemoryShare
from tests.fakes.kinds.echo import EchoBackend
from tests.fakes.kinds.records import ECHO, EchoSettings, ShoutSettings
from tests.fakes.remote_engine import sends, serving, status
from tests.fakes.starting import MOCK_PROGRAM, program_of
from tests.unit.worker.whisper.models import write_model

LIMITS = LimitSettings(load_silence_s=20)


def take_all(demand: MemoryDemand) -> MemoryShare:
    return MemoryShare(n_slots=1, n_ctx=demand.n_ctx)


def check_model(settings: BackendSettings) -> Finding:
    return check_files(KINDS.of(settings).doctor.files(settings))


CONTENT = b"GGUF" + bytes(100)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def model(short_dir):
    path = short_dir / "m.gguf"
    path.write_bytes(CONTENT)
    return path


def checked(path, sha256: str | None = None):
    return check_model(LlamaCppSettings(name="chat", model=str(path), sha256=sha256))


# --- the file ---------------------------------------------------------------------------


def test_a_model_with_its_hash_is_well(model):
    finding = checked(model, SHA256)
    assert finding.verdict is Verdict.OK
    assert finding.detail == f"104 bytes at {model}, SHA-256 as expected"


def test_a_model_without_a_hash_is_ok_and_reported_as_unverified(model):
    finding = checked(model)
    assert finding.verdict is Verdict.OK
    assert "not verified" in finding.detail


def test_a_model_with_another_hash_is_a_failure_with_both(model):
    finding = checked(model, "0" * 64)
    assert finding.verdict is Verdict.FAILED
    assert SHA256 in finding.detail
    assert "0" * 64 in finding.detail
    assert finding.hint


@pytest.mark.parametrize("leaf", ["missing.gguf", "."])
def test_a_model_that_is_no_file_is_a_failure_with_a_hint(short_dir, leaf):
    finding = checked(short_dir / leaf)
    assert finding.verdict is Verdict.FAILED
    assert finding.hint.startswith("set model in [[backend]] ")


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        ("embedded:chat", "inferd model pull embedded:chat"),
        ("me/my-model:q4", "inferd model import FILE --name me/my-model:q4"),
        ("/srv/m.gguf", "set model in [[backend]] chat to a file that exists"),
        ("./m.gguf", "set model in [[backend]] chat to a file that exists"),
    ],
)
def test_a_missing_model_has_the_hint_of_its_source(short_dir, reference, hint):
    files = [RequiredFile("model", short_dir / "missing", None)]
    assert hint in check_files(files, reference, "chat").hint


def test_files_that_are_broken_are_removed_if_the_store_has_them(short_dir):
    stored = RequiredFile("model", short_dir / "blobs" / "0", None)
    own = RequiredFile("mmproj", short_dir / "p.gguf", None)
    remove = "inferd model remove me/m:q4; then bring it again"
    assert broken_hint("me/m:q4", [stored, stored], "chat") == remove
    replace = "set the right ones in [[backend]] chat"
    for files in ([stored, own], [own], []):
        assert broken_hint("me/m:q4", files, "chat").endswith(replace)


def test_the_parts_of_a_split_model_are_checked_as_one_file(model):
    other = model.with_name("other")
    other.write_bytes(CONTENT[:-1])
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (model, other)]

    def check(*sha256: str) -> Finding:
        return check_model(
            LlamaCppSettings(
                name="chat",
                model=str(model),
                model_parts=(str(other),),
                sha256=sha256 or None,
            )
        )

    assert check(*digests).detail == (
        f"207 bytes in 2 files, the first at {model}, SHA-256 as expected"
    )
    assert "2 files" in check().detail
    assert "not verified" in check().detail
    wrong = check(digests[0], "0" * 64)
    assert wrong.detail == f"{other} has SHA-256 {digests[1]}, expected {'0' * 64}"
    assert f'"{digests[1]}" as its digest in the list' in wrong.hint
    other.unlink()
    assert check().detail == f"missing at {other}"


def test_hints_remove_no_file(model):
    def hint(reference, path=model):
        files = [RequiredFile("model", path, "0" * 64)]
        return check_files(files, reference, "chat").hint

    own = hint(str(model))
    assert "rm " not in own
    assert f'set sha256 = "{SHA256}" in [[backend]] chat' in own
    (model.parent / "blobs").mkdir()
    stored = model.rename(model.parent / "blobs" / model.name)
    assert hint("me/m:q4", stored).startswith("inferd model verify me/m:q4; ")
    assert hint("embedded:chat", stored) == (
        "inferd model verify embedded:chat; inferd model pull embedded:chat"
    )
    assert "rm " not in hint("me/m:q4", stored)
    whole = stored.rename(stored.with_name(SHA256))
    assert hint("me/m:q4", whole).startswith(
        f'set sha256 = "{SHA256}" in [[backend]] chat, or remove it'
    )


def test_a_file_is_hashed_to_its_last_byte(model):
    assert checked(model, SHA256).verdict is Verdict.OK
    model.write_bytes(CONTENT[:-1] + b"x")
    assert checked(model, SHA256).verdict is Verdict.FAILED


def with_projector(model, path, sha256=None):
    return check_model(
        LlamaCppSettings(
            name="chat", model=str(model), mmproj=str(path), mmproj_sha256=sha256
        )
    )


def test_a_projector_is_checked_like_the_model(model):
    finding = with_projector(model, model, SHA256)
    assert finding.verdict is Verdict.OK
    assert "; mmproj: 104 bytes at" in finding.detail
    for path, sha256 in ((model, "0" * 64), (model.with_name("missing"), None)):
        finding = with_projector(model, path, sha256)
        assert finding.verdict is Verdict.FAILED
        assert finding.detail.startswith("mmproj: ")
        assert "mmproj" in (finding.hint or "")


def test_checking_changes_nothing(model):
    before = model.stat()
    checked(model, "0" * 64)
    after = model.stat()
    assert (after.st_mtime_ns, after.st_size) == (before.st_mtime_ns, before.st_size)


# --- the worker -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_that_loads_is_ok_and_lists_its_capabilities():
    finding = check_worker(MOCK_PROGRAM, MockSettings(name="m"), LIMITS, take_all)
    assert finding.verdict is Verdict.OK
    assert finding.detail.startswith("mock; ")
    assert "model mock" in finding.detail


@pytest.mark.slow
def test_a_remote_is_not_asked_and_no_self_test_is_claimed():
    settings = OpenAiSettings(name="r", base_url="http://127.0.0.1:9", model="far")
    finding = check_worker(program_of(settings), settings, LIMITS, take_all)
    assert finding.verdict is Verdict.OK
    assert finding.detail == (
        "OpenAI's API at http://127.0.0.1:9; model far there; the remote was not asked"
    )


@pytest.mark.slow
def test_a_remote_that_is_asked_has_the_model_or_says_what_it_has(tmp_path):
    listed = [{"id": "far"}, {"id": "x" * 200}]
    models = {"object": "list", "data": listed}
    key = tmp_path / "key"
    key.write_text("sk-secret")
    key.chmod(0o644)
    with serving() as engine:
        settings = OpenAiSettings(name="r", base_url=engine.url, model="far")
        engine.script = sends(status(200, models))
        found = check_remote(program_of(settings), settings, LIMITS, None)
        assert found.verdict is Verdict.OK
        where = f"OpenAI's API at {engine.url}"
        assert found.detail == f"{where} answers, and has the model far"
        assert engine.requests[-1][0].startswith(b"GET /v1/models HTTP/1.1\r\n")
        other = msgspec.structs.replace(settings, model="near")
        found = check_remote(program_of(other), other, LIMITS, None)
        assert found.verdict is Verdict.FAILED
        assert "has no model near; the first of its 2: far, xxx" in found.detail
        assert len(found.detail) < 400
        engine.script = sends(status(401, {"error": {"message": "no"}}))
        found = check_remote(program_of(settings), settings, LIMITS, None)
        assert found.verdict is Verdict.FAILED
        assert found.detail == "the remote refuses the key (HTTP 401)"
    found = check_remote(program_of(settings), settings, LIMITS, None)
    assert found.verdict is Verdict.FAILED
    assert "cannot be reached" in found.detail
    assert check_key_file(key).hint == f"chmod o= {key}"
    key.chmod(0o600)
    assert check_key_file(key).verdict is Verdict.OK
    key.unlink()
    assert check_key_file(key).verdict is Verdict.FAILED


@pytest.mark.slow
def test_a_model_that_writes_speech_down_is_tried_like_any_other(short_dir):
    path = write_model(short_dir / "small.bin")
    speech = WhisperCppSettings(name="w", model=str(path), sha256="0" * 64)
    tried = KINDS.of(speech).doctor.without_hashes(speech)
    finding = check_worker(program_of(speech), tried, LIMITS, take_all)
    assert finding.verdict is Verdict.OK
    assert finding.detail.startswith("whisper.cpp ")
    assert "self-test passed; model small" in finding.detail
    assert check_model(speech).verdict is Verdict.FAILED


@pytest.mark.slow
def test_a_worker_that_crashes_costs_itself_alone():
    settings = MockSettings(name="m", die_at_load=True, die_by="SIGSEGV")
    finding = check_worker(program_of(settings), settings, LIMITS, take_all)
    assert finding.verdict is Verdict.FAILED
    assert finding.detail == "killed by SIGSEGV"
    assert "make setup" in finding.hint


@pytest.mark.slow
def test_a_worker_that_hangs_is_a_failure():
    settings = MockSettings(name="m", die_at_load=True, die_by="SIGSTOP")
    finding = check_worker(
        program_of(settings), settings, LimitSettings(load_silence_s=0.5), take_all
    )
    assert finding.verdict is Verdict.FAILED
    assert finding.detail == "hung: no message for 0.5 s"


@pytest.mark.slow
def test_the_message_of_a_worker_is_the_finding(short_dir):
    settings = LlamaCppSettings(name="chat", model=str(short_dir / "missing.gguf"))
    finding = check_worker(program_of(settings), settings, LIMITS, take_all)
    assert finding.verdict is Verdict.FAILED
    assert finding.detail == f"model file not found: {short_dir}/missing.gguf"
    assert finding.hint == "make setup"


# --- other kinds ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_that_demands_memory_unforeseen_is_a_failure(monkeypatch, short_dir):
    monkeypatch.setenv("PYTHONPATH", os.fspath(Path.cwd()))
    path = short_dir / "text"
    path.write_text("hi")
    settings = ShoutSettings(name="s", file=str(path))
    finding = check_worker(
        "tests.fakes.kinds.shout", settings, LIMITS, partial(Forecast().share, "s")
    )
    assert finding.verdict is Verdict.FAILED
    assert finding.detail == "its kind has no part in the memory plan"


@pytest.mark.slow
def test_a_backend_in_the_daemon_that_never_gets_ready_is_a_failure(monkeypatch):
    async def hang(_self: object, _on_ready: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(EchoBackend, "run", hang)
    settings = EchoSettings(name="e", greeting="hi")
    assert isinstance(ECHO.served_by, InDaemon)
    limits = LimitSettings(load_silence_s=0.01)
    finding = check_in_daemon(ECHO.served_by, settings, limits)
    assert (finding.verdict, finding.detail) == (
        Verdict.FAILED,
        "not ready within 0.01 s",
    )
