"""Checks of a configured backend: its file, its library, a decode in a child."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

from inferd.backend import BackendCapabilities
from inferd.config import BackendSettings, LimitSettings, LlamaCppSettings
from inferd.doctor.check import Finding, failed, ok
from inferd.engine.process import KILLED_BY, start_worker
from inferd.engine.session import Session, SessionOverError
from inferd.fit import Demand, Share
from inferd.ipc import Load, Loaded

_BLOCK_BYTES = 1024 * 1024
_REBUILD = "CMAKE_ARGS='-DGGML_AVX2=OFF -DGGML_FMA=OFF -DGGML_F16C=OFF -DGGML_BMI2=OFF' make setup"


def check_model(settings: LlamaCppSettings) -> Finding:
    """Is the file there, and the one that was pinned?"""
    path = Path(settings.model)
    if not path.is_file():
        return failed(f"missing at {path}", "make setup")
    size = path.stat().st_size
    if settings.sha256 is None:
        return ok(f"{size} bytes at {path}; no sha256 configured, so not verified")
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() != settings.sha256:
        return failed(
            f"{path} has SHA-256 {digest.hexdigest()}, expected {settings.sha256}",
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
    if isinstance(outcome, Loaded):
        return ok(f"{outcome.library}; {_abilities(outcome.capabilities)}")
    return failed(outcome, _REBUILD if outcome.startswith(KILLED_BY) else "make setup")


async def _load(
    settings: BackendSettings,
    limits: LimitSettings,
    share: Callable[[Demand], Share],
) -> Loaded | str:
    async def allot(demand: Demand) -> Share:
        return share(demand)

    async with start_worker() as process:
        try:
            return await Session(process).load(
                Load(settings=_small(settings), n_slots=1),
                lambda _: None,
                allot,
                silence_s=limits.load_silence_s,
            )
        except SessionOverError as error:
            return str(error)


def _small(settings: BackendSettings) -> BackendSettings:
    """Leave out the hash, which is another check."""
    if isinstance(settings, LlamaCppSettings):
        return msgspec.structs.replace(settings, sha256=None)
    return settings


def _abilities(able: BackendCapabilities) -> str:
    return (
        f"self-test passed; model {able.model}, context {able.n_ctx or 'unbounded'}, "
        f"accelerator {able.accelerator.kind}, gpu_layers {able.accelerator.gpu_layers}"
    )
