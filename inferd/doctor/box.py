"""Check of the boxes that processes put themselves in."""

import msgspec
import trio

from inferd.config import LimitSettings, MockSettings
from inferd.doctor.check import Finding, failed, ok, warning
from inferd.engine.conduct import SessionOverError
from inferd.engine.process import start_worker
from inferd.engine.session import Session
from inferd.fit import Demand, Share
from inferd.ipc import Boxed, Load
from inferd.server.decoding import Decoder
from inferd.server.loop import Loop


def check_box(limits: LimitSettings) -> Finding:
    """How much can processes give up on this machine?

    A scripted worker is started, which gives up what any other does that has no
    accelerator, and a process that reads large lines.
    """
    boxed = trio.run(_enter, limits)
    if boxed is None:
        return failed("a scripted worker does not start", "make setup")
    reader = trio.run(_enter_decoder, limits)
    if reader is None:
        return failed("what reads large lines does not start", "make setup")
    landlock = f"ABI {boxed.landlock}" if boxed.landlock else "no"
    detail = f"landlock {landlock}, seccomp {'yes' if boxed.seccomp else 'no'}"
    if boxed.is_whole and reader.is_whole:
        return ok(detail)
    who = "a worker" if not boxed.is_whole else "what reads large lines"
    missing = dict.fromkeys((*boxed.missing, *reader.missing))
    lacks = "; ".join((f"{who} can do more than it needs to", *missing))
    return warning(f"{detail}: {lacks}")


async def _enter(limits: LimitSettings) -> Boxed | None:
    load = Load(settings=MockSettings(name="box"), n_slots=1)
    async with start_worker() as process:
        session = Session(process)
        try:
            await session.load(
                load, lambda _: None, _allot, silence_s=limits.load_silence_s
            )
        except SessionOverError:
            return None
        return session.boxed


async def _allot(demand: Demand) -> Share:
    return Share(n_slots=1, n_ctx=demand.n_ctx)


async def _enter_decoder(limits: LimitSettings) -> Boxed | None:
    with trio.move_on_after(limits.load_silence_s):
        try:
            decoder = Decoder(Loop())
            try:
                return await decoder.greet()
            finally:
                await decoder.aclose()
        except (OSError, msgspec.DecodeError):
            return None
    return None
