"""Checks of a configured backend: its file, its library, a decode in a child."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

from inferd.capabilities import BackendCapabilities
from inferd.config import (
    BackendSettings,
    LimitSettings,
    LlamaCppSettings,
    MockSettings,
    WhisperCppSettings,
)
from inferd.doctor.check import Finding, Verdict, failed, ok, warning
from inferd.engine.conduct import SessionOverError
from inferd.engine.process import start_worker
from inferd.engine.session import Session
from inferd.engine.stepdown import StepDown
from inferd.fit import Demand, Share
from inferd.ipc import Load, Loaded

_BLOCK_BYTES = 1024 * 1024


def check_model(settings: LlamaCppSettings | WhisperCppSettings) -> Finding:
    """Are the files there, the model's and its projector's, and those that were pinned?"""
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
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() != sha256:
        return failed(
            f"{path} has SHA-256 {digest.hexdigest()}, expected {sha256}",
            "remove it and run: make setup",
        )
    return ok(f"{size} bytes at {path}, SHA-256 as expected")


def check_worker(
    settings: BackendSettings,
    limits: LimitSettings,
    share: Callable[[Demand], Share],
) -> Finding:
    """Does a worker load it, fit its library, and decode?

    The worker checks the library's structs and decodes a few tokens before it says that
    it is ready; whatever goes wrong costs that process alone.

    Args:
        settings: of the backend.
        limits: for the time it may take.
        share: tells what memory it gets.
    """
    outcome = trio.run(_load, settings, limits, share)
    if isinstance(outcome, str):
        return failed(outcome, "make setup")
    loaded, crashed = outcome
    detail = f"{loaded.library}; {_abilities(loaded.capabilities)}"
    if crashed:
        return warning(f"{', '.join(crashed)} crashed and is not used; {detail}")
    return ok(detail)


async def _load(
    settings: BackendSettings,
    limits: LimitSettings,
    share: Callable[[Demand], Share],
) -> tuple[Loaded, tuple[str, ...]] | str:
    """Load; give what came of it and the variants that crashed, or why it failed."""

    async def allot(demand: Demand) -> Share:
        return share(demand)

    step_down = StepDown()
    while True:
        load = Load(settings=_small(settings), n_slots=1, crashed=step_down.crashed)
        async with start_worker() as process:
            session = Session(process)
            try:
                loaded = await session.load(
                    load, lambda _: None, allot, silence_s=limits.load_silence_s
                )
            except SessionOverError as error:
                if not step_down.died(error.reason, session.variant):
                    return str(error)
            else:
                return loaded, step_down.crashed


def _small(settings: BackendSettings) -> BackendSettings:
    """Leave out the hashes, which are other checks."""
    match settings:
        case LlamaCppSettings():
            return msgspec.structs.replace(settings, sha256=None, mmproj_sha256=None)
        case WhisperCppSettings():
            return msgspec.structs.replace(settings, sha256=None)
        case MockSettings():
            return settings


def _abilities(able: BackendCapabilities) -> str:
    return (
        f"self-test passed; model {able.model}, context {able.n_ctx or 'unbounded'}, "
        f"accelerator {able.accelerator.kind}, gpu_layers {able.accelerator.gpu_layers}"
        + (", takes images" if able.vision else "")
        + (f", takes audio of {able.audio_sample_rate} Hz" if able.audio else "")
    )
