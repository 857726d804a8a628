"""Checks of a configured backend: its files, and a decode in a worker."""

import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio

from inferd.backend.capabilities import AcceleratorInfo, BackendCapabilities
from inferd.backend.interface import StartFailedError
from inferd.config.find_model import pull_command
from inferd.config.kinds.kind import Credential, InDaemon, InWorker, RequiredFile
from inferd.config.kinds.registry import KindRegistry
from inferd.config.kinds.remote import RemoteSettings
from inferd.config.settings import BackendSettings, LimitSettings
from inferd.doctor.check import Check, Finding, Verdict, failed, ok, warning
from inferd.doctor.machine import reinstall_hint
from inferd.engine.channel.validator import SessionEndedError
from inferd.engine.in_daemon import make_in_daemon
from inferd.engine.supervisor.keys import CREDENTIALS_VARIABLE
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
from inferd.paths import SYSTEM_MODELS, model_stores
from inferd.trusted_path import open_regular_file


def check_files(
    files: Sequence[RequiredFile], reference: str = "", backend: str = ""
) -> Finding:
    """Check that the files of a model exist, with the pinned hashes.

    Hints change the store alone, never other files.

    Args:
        files: of the model, its parts first; these have one key.
        reference: how the configuration names the model.
        backend: its name.
    """
    parts = [file for file in files if file.key == files[0].key]
    found = _check_parts(parts, reference, backend)
    for other in files[len(parts) :]:
        if found.verdict is Verdict.FAILED:
            return found
        match _examine(other.path, other.sha256):
            case _FileFault(text):
                hint = f"correct {other.key} in its [[backend]]"
                return failed(f"{other.key}: {text}", hint)
            case size:
                described = _describe_files(size, [other])
                found = ok(f"{found.detail}; {other.key}: {described}")
    return found


def model_hint(reference: str, backend: str) -> str:
    """Return how to bring a model that is missing."""
    if reference.startswith(EMBEDDED_PREFIX):
        return pull_command(reference, model_stores())
    if (
        reference
        and "/" in reference[:-1]
        and not reference.startswith(("/", ".", "~"))
    ):
        return f"inferd model import FILE --name {reference}"
    return f"set model in [[backend]] {backend} to a file that exists"


def broken_hint(reference: str, files: Sequence[RequiredFile], backend: str) -> str:
    """Return what to do about a model with a file whose content is at fault.

    Args:
        reference: how the model is named.
        files: of it; only those of a store are removed.
        backend: that serves it.
    """
    if files and all(file.path.parent.name == BLOBS for file in files):
        command = store_command("remove", reference, files[0].path)
        return f"{command}; then bring it again"
    return (
        f"inferd model show FILE tells what a file is; set the right ones in [[backend]] "
        f"{backend}"
    )


def store_command(command: str, arguments: str, file: Path) -> str:
    """Return a command that changes the store which a file is in.

    Args:
        command: of ``inferd model``.
        arguments: of it.
        file: of that store.
    """
    if file.is_relative_to(SYSTEM_MODELS):
        return f"sudo inferd model {command} --system {arguments}"
    return f"inferd model {command} {arguments}"


def _check_parts(
    parts: Sequence[RequiredFile], reference: str, backend: str
) -> Finding:
    """Check the file of a model, or all parts of one that was split."""
    n_bytes = 0
    for _, path, sha256 in parts:
        match _examine(path, sha256):
            case _FileFault(text, actual=""):
                return failed(text, model_hint(reference, backend))
            case _FileFault(text, actual):
                is_split = len(parts) > 1
                hint = _digest_hint(path, actual, reference, backend, is_split=is_split)
                return failed(text, hint)
            case size:
                n_bytes += size
    return ok(_describe_files(n_bytes, parts))


def _describe_files(n_bytes: int, parts: Sequence[RequiredFile]) -> str:
    where = f"{n_bytes} bytes at {parts[0].path}"
    if len(parts) > 1:
        where = f"{n_bytes} bytes in {len(parts)} files, the first at {parts[0].path}"
    if parts[0].sha256 is None:
        return f"{where}; no sha256 configured, so not verified"
    return f"{where}, SHA-256 as expected"


class _FileFault(NamedTuple):
    """What is wrong with a file."""

    text: str
    actual: str = ""
    """Its SHA-256, if that is what is wrong."""


def _examine(path: Path, sha256: str | None) -> int | _FileFault:
    """Return the size of a file, which has the SHA-256 that it must have."""
    try:
        descriptor = open_regular_file(path)
    except FileNotFoundError:
        return _FileFault(f"missing at {path}")
    except OSError as error:
        return _FileFault(f"{path}: {error.strerror or error}")
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        actual = None if sha256 is None else _sha256(file, size)
    if actual is None or actual == sha256:
        return size
    return _FileFault(f"{path} has SHA-256 {actual}, expected {sha256}", actual)


def _sha256(file: io.RawIOBase, n_bytes: int) -> str:
    """Hash so many bytes of a file: one that grows all the time has no end."""
    digest = hashlib.sha256()
    while n_bytes and (block := file.read(min(n_bytes, BLOB_BLOCK_BYTES))):
        digest.update(block)
        n_bytes -= len(block)
    return digest.hexdigest()


def _digest_hint(
    path: Path, actual: str, reference: str, backend: str, *, is_split: bool
) -> str:
    """Return what to do about a file with another SHA-256; only our own are removed."""
    if path.parent.name == BLOBS and path.name == actual:
        return (  # the file is whole, so the configuration has another's digest
            f'set sha256 = "{actual}" in [[backend]] {backend}, or remove it: the store '
            "has a digest of its own"
        )
    if path.parent.name == BLOBS:
        bring = (
            model_hint(reference, backend)
            if reference.startswith(EMBEDDED_PREFIX)
            else store_command("import", f"FILE --name {reference}", path)
        )
        return f"{store_command('verify', reference, path)}; {bring}"
    digest = f'"{actual}" as its digest in the list' if is_split else f'= "{actual}"'
    return (
        f"if the file is the right one, set sha256 {digest} in [[backend]] "
        f"{backend}; else set model to the right one"
    )


def check_worker(
    program: str,
    settings: BackendSettings,
    limits: LimitSettings,
    share: Callable[[MemoryDemand], MemoryShare],
    credential: Credential | None = None,
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
        credential: the key that the worker gets.
    """

    async def grant(demand: MemoryDemand) -> MemoryShare:
        return share(demand)

    load = Load(settings=settings, n_slots=1)
    start = WorkerStart(program, load, credential=credential)
    attempt = partial(trial_load, start, grant, silence_s=limits.load_silence_s)
    try:
        loaded, _, crashed = trio.run(attempt)
    except SessionEndedError as error:
        # of one with a key, the message says what to do
        return failed(str(error), "" if credential else reinstall_hint())
    except InsufficientMemoryError as error:
        return failed(str(error))
    detail = f"{loaded.library}; {_describe(loaded.capabilities)}"
    if crashed:
        return warning(f"{', '.join(crashed)} crashed and is not used; {detail}")
    return ok(detail)


def check_remote(
    program: str,
    settings: BackendSettings,
    limits: LimitSettings,
    credential: Credential | None,
) -> Finding:
    """Check that a remote answers and has the model: its list of models is asked for.

    Name resolution, connection, TLS and key are those of the worker that serves it.

    Args:
        program: of the worker.
        settings: of the backend.
        limits: with the timeout.
        credential: the key that the worker gets.
    """

    async def grant(_: MemoryDemand) -> MemoryShare:
        raise AssertionError  # such a worker demands no memory

    load = Load(settings=settings, n_slots=1, asks_remote=True)
    start = WorkerStart(program, load, credential=credential)
    attempt = partial(trial_load, start, grant, silence_s=limits.load_silence_s)
    try:
        loaded, _, _ = trio.run(attempt)
    except SessionEndedError as error:
        return failed(str(error))
    return ok(loaded.library)


def check_key_file(path: Path) -> Finding:
    """Check that the file of a key can be read, and not by everybody."""
    try:
        status = path.stat()
        with path.open("rb"):
            pass
    except OSError as error:
        return failed(f"{path}: {error.strerror}", "set api_key_credential")
    if status.st_mode & stat.S_IRWXO:
        mode = stat.S_IMODE(status.st_mode)
        text = f"{path}: everybody may access the key (mode {mode:04o})"
        return warning(text, f"chmod o= {path}")
    return ok(f"{path}: readable, and not by everybody")


def remote_checks(
    settings: BackendSettings,
    kinds: KindRegistry,
    limits: LimitSettings,
    *,
    asks: bool,
) -> Iterator[Check]:
    """Yield the checks of an engine elsewhere; none of another backend.

    Args:
        settings: of the backend.
        kinds: the kinds of backends.
        limits: with the timeout.
        asks: whether to connect to it.
    """
    served_by = kinds.of(settings).served_by
    if not (isinstance(settings, RemoteSettings) and isinstance(served_by, InWorker)):
        return
    name, credential = settings.name, settings.api_key_credential
    directory = os.environ.get(CREDENTIALS_VARIABLE)
    if credential is not None and directory is not None:
        path = Path(directory) / credential
        yield Check(f"key[{name}]", partial(check_key_file, path))
    if asks:
        attempt = partial(
            check_remote,
            *(served_by.program, settings, limits, served_by.credential(settings)),
        )
        yield Check(f"remote[{name}]", attempt, [f"worker[{name}]"])


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
    if capabilities.remote:
        return f"model {capabilities.model} there; the remote was not asked"
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
