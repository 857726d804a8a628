"""Check of the sandboxes that processes enter."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import trio

from inferd.config.kinds.kind import InWorker
from inferd.config.kinds.registry import MODELLESS
from inferd.config.settings import LimitSettings
from inferd.doctor.check import Finding, failed, ok, warning
from inferd.doctor.machine import reinstall_hint
from inferd.engine.channel.validator import SessionEndedError
from inferd.engine.supervisor.spawn import WorkerStart
from inferd.engine.trial_load import trial_load
from inferd.ipc.worker import Load, SandboxReport
from inferd.memory.plan import MemoryDemand, MemoryShare
from inferd.server.event_loop.scheduler import LoopScheduler
from inferd.server.large_lines.decoder_pool import DecoderProcess
from inferd.trusted_path import UntrustedError, open_unredirected_file

SECURITY_MODULES: Final = Path("/sys/kernel/security/lsm")
LANDLOCK_CALLS: Final = (
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
)
EVENT: Final = "worker.boxed"
LOG_TAIL_BYTES: Final = 1024 * 1024
"""Bytes of the log's end in which the last start of a worker is looked for: some 3,000
requests."""


def check_sandbox(limits: LimitSettings) -> Finding:
    """Check which restrictions of the sandbox this machine supports.

    It starts a worker with the mock backend, which has the same sandbox as any other
    worker without an accelerator, and a decoder of large lines.
    """
    worker = trio.run(_enter, limits)
    if worker is None:
        return failed("a worker with the mock backend does not start", reinstall_hint())
    decoder = trio.run(_enter_decoder, limits)
    if decoder is None:
        return failed("the decoder of large lines does not start", reinstall_hint())
    landlock = f"ABI {worker.landlock}" if worker.landlock else "no"
    detail = f"landlock {landlock}, seccomp {'yes' if worker.seccomp else 'no'}"
    if worker.is_complete and decoder.is_complete:
        return ok(detail)
    process = "the decoder of large lines" if worker.is_complete else "a worker"
    missing = dict.fromkeys((*worker.missing, *decoder.missing))
    gaps = "; ".join((f"{process} can do more than it needs to", *missing))
    return warning(f"{detail}: {gaps}", "" if worker.landlock else landlock_hint())


def landlock_hint(modules: Path = SECURITY_MODULES) -> str:
    """Return what to do where Landlock cannot be used, by the kernel's list of modules.

    Args:
        modules: the list of those that the kernel was started with.
    """
    try:
        names = modules.read_text().strip()
    except OSError:
        return (
            "Landlock needs Linux 5.13 or later, built with CONFIG_SECURITY_LANDLOCK and "
            "started with landlock in lsm=: uname -r; cat /proc/cmdline"
        )
    if "landlock" in names.split(","):
        return (
            "the kernel has Landlock: let the system call filter around inferd pass "
            f"{', '.join(LANDLOCK_CALLS)}"
        )
    return f"start the kernel with lsm=landlock,{names}, which switches Landlock on"


async def _enter(limits: LimitSettings) -> SandboxReport | None:
    assert isinstance(MODELLESS.served_by, InWorker)  # noqa: S101  # it is
    load = Load(settings=MODELLESS.settings(name="sandbox"), n_slots=1)
    start = WorkerStart(MODELLESS.served_by.program, load)
    try:
        trial = await trial_load(start, _allot, silence_s=limits.load_silence_s)
    except SessionEndedError:
        return None
    return trial.sandbox_report


async def _allot(demand: MemoryDemand) -> MemoryShare:
    return MemoryShare(n_slots=1, n_ctx=demand.n_ctx)


async def _enter_decoder(limits: LimitSettings) -> SandboxReport | None:
    with trio.move_on_after(limits.load_silence_s):
        try:
            decoder = DecoderProcess(LoopScheduler())
            try:
                return await decoder.wait_sandboxed()
            finally:
                await decoder.aclose()
        except (OSError, msgspec.DecodeError):
            return None
    return None


class SandboxEvent(msgspec.Struct):
    """The event of the log with which a daemon reports the sandbox of a worker."""

    msg: str
    landlock: int = 0
    seccomp: bool = False
    is_open: bool = False
    missing: list[str] = msgspec.field(default_factory=list)


def last_sandbox_event(log: Path) -> SandboxEvent | None:
    """Find the last such event in the end of a log file, if it can be read.

    The file and its directory are the daemon's user's, who may put anything there. F-44.
    """
    try:
        with os.fdopen(open_unredirected_file(log), "rb", buffering=0) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            lines = file.read(LOG_TAIL_BYTES).splitlines()
    except (OSError, UntrustedError):
        return None
    for line in reversed(lines):
        if EVENT.encode() not in line:
            continue
        with suppress(msgspec.DecodeError):  # the first line may be cut
            event = msgspec.json.decode(line, type=SandboxEvent)
            if event.msg == EVENT:
                return event
    return None


def check_sandbox_in_force(event: SandboxEvent | None, hint: str) -> Finding:
    """Check that the workers of a service have the sandbox that its machine supports.

    Args:
        event: of the worker that was started last.
        hint: what to do about a drop-in that weakens it.
    """
    if event is None:
        return ok("the log has no start of a worker")
    if event.is_open:
        return ok("open to devices, as n_gpu_layers of its backend asks for")
    if event.missing:
        return warning(
            "a worker of the service can do more than it needs to: "
            + "; ".join(event.missing),
            hint,
        )
    seccomp = "yes" if event.seccomp else "no"
    return ok(f"landlock ABI {event.landlock}, seccomp {seccomp} in force")
