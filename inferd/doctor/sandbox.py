"""Check of the sandboxes that processes enter."""

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
    return warning(f"{detail}: {gaps}")


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
