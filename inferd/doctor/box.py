"""Check of the box that workers put themselves in."""

import trio

from inferd.config import LimitSettings, MockSettings
from inferd.doctor.check import Finding, failed, ok, warning
from inferd.engine.conduct import SessionOverError
from inferd.engine.process import start_worker
from inferd.engine.session import Session
from inferd.fit import Demand, Share
from inferd.ipc import Boxed, Load


def check_box(limits: LimitSettings) -> Finding:
    """How much can a worker give up on this machine?

    A scripted worker is started, which gives up what any other does that has no
    accelerator.
    """
    boxed = trio.run(_enter, limits)
    if boxed is None:
        return failed("a scripted worker does not start", "make setup")
    landlock = f"ABI {boxed.landlock}" if boxed.landlock else "no"
    detail = f"landlock {landlock}, seccomp {'yes' if boxed.seccomp else 'no'}"
    if boxed.is_whole:
        return ok(detail)
    lacks = "; ".join(("a worker can do more than it needs to", *boxed.missing))
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
