"""Checks of a configured backend: its files, and a decode in a worker."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import trio

from inferd.backend.capabilities import BackendCapabilities
from inferd.config.settings import (
    BackendSettings,
    LimitSettings,
    LlamaCppSettings,
    MockSettings,
    WhisperCppSettings,
)
from inferd.doctor.check import Finding, Verdict, failed, ok, warning
from inferd.engine.channel.validator import SessionEndedError
from inferd.engine.trial_load import trial_load
from inferd.ipc.worker import Load
from inferd.memory.plan import MemoryDemand, MemoryShare


def check_model(settings: LlamaCppSettings | WhisperCppSettings) -> Finding:
    """Check that the model's and the projector's files exist, with the pinned hashes."""
    model = _check_file(Path(settings.model), settings.sha256)
    if isinstance(settings, WhisperCppSettings) or settings.mmproj is None:
        return model
    if model.verdict is Verdict.FAILED:
        return model
    projector = _check_file(Path(settings.mmproj), settings.mmproj_sha256)
    if projector.verdict is Verdict.FAILED:
        return failed(
            f"mmproj: {projector.detail}", "correct mmproj in its [[backend]]"
        )
    return ok(f"{model.detail}; mmproj: {projector.detail}")


def _check_file(path: Path, sha256: str | None) -> Finding:
    if not path.is_file():
        return failed(f"missing at {path}", "make setup")
    size = path.stat().st_size
    if sha256 is None:
        return ok(f"{size} bytes at {path}; no sha256 configured, so not verified")
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != sha256:
        return failed(
            f"{path} has SHA-256 {actual}, expected {sha256}",
            "remove it and run: make setup",
        )
    return ok(f"{size} bytes at {path}, SHA-256 as expected")


def check_worker(
    settings: BackendSettings,
    limits: LimitSettings,
    share: Callable[[MemoryDemand], MemoryShare],
) -> Finding:
    """Check that a worker can load the model and decode with it.

    The worker checks the struct layouts of the library and decodes a few tokens before it
    reports that it is ready; a crash affects only that process.

    Args:
        settings: of the backend.
        limits: with the timeout.
        share: returns the memory that it may use.
    """

    async def grant(demand: MemoryDemand) -> MemoryShare:
        return share(demand)

    load = Load(settings=_without_hashes(settings), n_slots=1)
    attempt = partial(trial_load, load, grant, silence_s=limits.load_silence_s)
    try:
        loaded, _, crashed = trio.run(attempt)
    except SessionEndedError as error:
        return failed(str(error), "make setup")
    detail = f"{loaded.library}; {_describe(loaded.capabilities)}"
    if crashed:
        return warning(f"{', '.join(crashed)} crashed and is not used; {detail}")
    return ok(detail)


def _without_hashes(settings: BackendSettings) -> BackendSettings:
    """Remove the hashes: ``check_model`` verifies them."""
    match settings:
        case LlamaCppSettings():
            return msgspec.structs.replace(settings, sha256=None, mmproj_sha256=None)
        case WhisperCppSettings():
            return msgspec.structs.replace(settings, sha256=None)
        case MockSettings():
            return settings


def _describe(capabilities: BackendCapabilities) -> str:
    return (
        f"self-test passed; model {capabilities.model}, "
        f"context {capabilities.n_ctx or 'unbounded'}, "
        f"accelerator {capabilities.accelerator.kind}, "
        f"gpu_layers {capabilities.accelerator.gpu_layers}"
        + (", accepts images" if capabilities.vision else "")
        + (
            f", accepts audio of {capabilities.audio_sample_rate} Hz"
            if capabilities.audio
            else ""
        )
    )
