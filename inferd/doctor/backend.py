"""Checks of a configured backend: its files, and a decode in a worker."""

import hashlib
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio

from inferd.backend.capabilities import AcceleratorInfo, BackendCapabilities
from inferd.backend.interface import StartFailedError
from inferd.config.kinds.kind import InDaemon, RequiredFile
from inferd.config.settings import BackendSettings, LimitSettings
from inferd.doctor.check import Finding, Verdict, failed, ok, warning
from inferd.doctor.machine import reinstall_hint
from inferd.engine.channel.validator import SessionEndedError
from inferd.engine.in_daemon import make_in_daemon
from inferd.engine.supervisor.spawn import WorkerStart
from inferd.engine.trial_load import trial_load
from inferd.ipc.worker import Load
from inferd.limits.models import BLOB_BLOCK_BYTES
from inferd.memory.plan import (
    InsufficientMemoryError,
    MemoryDemand,
    MemoryShare,
    mib,
)
from inferd.models.embedded import EMBEDDED_PREFIX
from inferd.models.store.directory import BLOBS
from inferd.trusted_path import open_regular_file


def check_files(
    files: Sequence[RequiredFile], reference: str = "", backend: str = ""
) -> Finding:
    """Check that the files of a model exist, with the pinned hashes; the model's is first.

    Hints change the store and the cache of embedded models alone, never other files.

    Args:
        files: of the model.
        reference: how the configuration names the model.
        backend: its name.
    """
    model, *others = files
    found = _check_file(model.path, model.sha256, reference, backend)
    for key, path, sha256 in others:
        if found.verdict is Verdict.FAILED:
            return found
        other = _check_file(path, sha256, "", backend)
        if other.verdict is Verdict.FAILED:
            return failed(f"{key}: {other.detail}", f"correct {key} in its [[backend]]")
        found = ok(f"{found.detail}; {key}: {other.detail}")
    return found


def model_hint(reference: str, backend: str) -> str:
    """Return how to bring a model that is missing."""
    if reference.startswith(EMBEDDED_PREFIX):
        return f"{shlex.quote(sys.executable)} -m inferd.models {reference}"
    if (
        reference
        and "/" in reference[:-1]
        and not reference.startswith(("/", ".", "~"))
    ):
        return f"inferd model import FILE --name {reference}"
    return f"set model in [[backend]] {backend} to a file that exists"


def _check_file(
    path: Path, sha256: str | None, reference: str, backend: str
) -> Finding:
    try:
        descriptor = open_regular_file(path)
    except FileNotFoundError:
        return failed(f"missing at {path}", model_hint(reference, backend))
    except OSError as error:
        return failed(
            f"{path}: {error.strerror or error}", model_hint(reference, backend)
        )
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        if sha256 is None:
            return ok(f"{size} bytes at {path}; no sha256 configured, so not verified")
        actual = _sha256(file, size)
    if actual == sha256:
        return ok(f"{size} bytes at {path}, SHA-256 as expected")
    return failed(
        f"{path} has SHA-256 {actual}, expected {sha256}",
        _digest_hint(path, actual, reference, backend),
    )


def _sha256(file: io.RawIOBase, n_bytes: int) -> str:
    """Hash so many bytes of a file: one that grows all the time has no end."""
    digest = hashlib.sha256()
    while n_bytes and (block := file.read(min(n_bytes, BLOB_BLOCK_BYTES))):
        digest.update(block)
        n_bytes -= len(block)
    return digest.hexdigest()


def _digest_hint(path: Path, actual: str, reference: str, backend: str) -> str:
    """Return what to do about a file with another SHA-256; only our own are removed."""
    if reference.startswith(EMBEDDED_PREFIX):  # in the cache
        return f"rm {shlex.quote(str(path))}; {model_hint(reference, backend)}"
    if path.parent.name == BLOBS:
        return (
            f"inferd model verify {reference}; "
            f"inferd model import FILE --name {reference}"
        )
    return (
        f'if the file is the right one, set sha256 = "{actual}" in [[backend]] '
        f"{backend}; else set model to the right one"
    )


def check_worker(
    program: str,
    settings: BackendSettings,
    limits: LimitSettings,
    share: Callable[[MemoryDemand], MemoryShare],
) -> Finding:
    """Check that a worker can load the model and decode with it.

    The worker checks the struct layouts of the library and decodes a few tokens before it
    reports that it is ready; a crash affects only that process.

    Args:
        program: of the worker.
        settings: of the backend, without hashes: ``check_files`` compares them.
        limits: with the timeout.
        share: returns the memory that it may use, or raises
            ``InsufficientMemoryError``.
    """

    async def grant(demand: MemoryDemand) -> MemoryShare:
        return share(demand)

    start = WorkerStart(program, Load(settings=settings, n_slots=1))
    attempt = partial(trial_load, start, grant, silence_s=limits.load_silence_s)
    try:
        loaded, _, crashed = trio.run(attempt)
    except SessionEndedError as error:
        return failed(str(error), reinstall_hint())
    except InsufficientMemoryError as error:
        return failed(str(error))
    detail = f"{loaded.library}; {_describe(loaded.capabilities)}"
    if crashed:
        return warning(f"{', '.join(crashed)} crashed and is not used; {detail}")
    return ok(detail)


class _NoObserver:
    """Observer that nobody asks."""

    def ready(self, backend: str, capabilities: BackendCapabilities) -> None:
        """Do nothing."""


def check_in_daemon(
    kind: InDaemon, settings: BackendSettings, limits: LimitSettings
) -> Finding:
    """Check that a backend without a worker gets ready within ``load_silence_s``."""
    backend = make_in_daemon(kind, settings, _NoObserver())

    async def attempt() -> bool:
        with trio.move_on_after(limits.load_silence_s):
            async with trio.open_nursery() as nursery:
                is_ready = trio.Event()
                nursery.start_soon(backend.run, is_ready.set)
                await is_ready.wait()
                nursery.cancel_scope.cancel()
                return True
        return False

    reasons: list[str] = []
    try:
        if not trio.run(attempt):
            reasons.append(f"not ready within {limits.load_silence_s:g} s")
    except* StartFailedError as group:
        reasons += map(str, group.exceptions)
    if reasons:
        return failed("; ".join(reasons))
    return ok(_describe(backend.capabilities))


def _describe(capabilities: BackendCapabilities) -> str:
    return (
        f"self-test passed; model {capabilities.model}, "
        f"context {capabilities.n_ctx or 'unbounded'}, "
        f"accelerator {_accelerator(capabilities.accelerator)}"
        + (", accepts images" if capabilities.vision else "")
        + (
            f", accepts audio of {capabilities.audio_sample_rate} Hz"
            if capabilities.audio
            else ""
        )
    )


def _accelerator(info: AcceleratorInfo) -> str:
    if not info.device_name:
        return f"{info.kind}, gpu_layers {info.gpu_layers}"
    total, free = (mib(each) for each in (info.vram_total_bytes, info.vram_free_bytes))
    unused = "" if info.gpu_layers else ' and unused (n_gpu_layers = "auto" uses it)'
    return (
        f"{info.kind}: {info.device_name}, {free} of {total} free{unused}, "
        f"gpu_layers {info.gpu_layers}"
    )
