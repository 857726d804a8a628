"""Start the process of a pull, pass its frames on, and end it."""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from subprocess import PIPE
from typing import Final

import msgspec
import trio

from inferd.errors import FrameTooLargeError
from inferd.limits.bridge import HELPER_END_S, HELPER_FRAME_BYTES
from inferd.management.policy import HelperRefusedError
from inferd.management.pulling import PullTask
from inferd.wire.codec import DECODE_FAILURES
from inferd.wire.framing import LineSplitter
from inferd.wire.management import (
    HELPER_FRAMES,
    HelperDone,
    HelperFailure,
    HelperFrame,
)

_PROGRAM: Final = ("-P", "-m", "inferd.management.pulling")


async def pull_frames(
    task: PullTask, environ: Mapping[str, str], max_s: float
) -> AsyncGenerator[HelperFrame, None]:
    """Pull a model and yield the frames about it, the last of which is ``done``.

    Use ``aclosing``.

    Args:
        task: what is pulled.
        environ: of the process.
        max_s: seconds that it may take.

    Raises:
        HelperRefusedError: the model is not pulled.

    Cancellation: ends the process; what came stays, and the next pull goes on there.
    """
    deadline = trio.current_time() + max_s
    process = await trio.lowlevel.open_process(
        [sys.executable, *_PROGRAM], stdin=PIPE, stdout=PIPE, env=environ
    )
    try:
        assert process.stdin is not None  # noqa: S101  # it is a pipe
        await process.stdin.send_all(msgspec.json.encode(task) + b"\n")
        async with aclosing(_frames(process, deadline)) as frames:
            async for frame in frames:
                if isinstance(frame, HelperFailure):
                    raise HelperRefusedError(frame.code, frame.message)
                yield frame
                if isinstance(frame, HelperDone):
                    return
    finally:
        with trio.CancelScope(shield=True):
            await _end(process)
    raise HelperRefusedError(
        "internal", "the pull has ended; the helper's log says why"
    )


async def _frames(
    process: trio.Process, deadline: float
) -> AsyncGenerator[HelperFrame, None]:
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    splitter = LineSplitter(HELPER_FRAME_BYTES)
    while True:
        data = b""
        with trio.move_on_at(deadline) as scope:
            data = bytes(await process.stdout.receive_some())
        if scope.cancelled_caught:
            raise HelperRefusedError(
                "failed", "the pull took too long; the next one goes on"
            )
        if not data:
            return
        splitter.feed(data)
        try:
            while (line := splitter.next_frame()) is not None:
                yield HELPER_FRAMES.decode(line)
        except (FrameTooLargeError, *DECODE_FAILURES) as error:
            text = "what the pull sent could not be read"
            raise HelperRefusedError("internal", text) from error


async def _end(process: trio.Process) -> None:
    """End a process: it is asked to, and killed if it does not."""
    assert process.stdin is not None  # noqa: S101  # it is a pipe
    await process.stdin.aclose()
    with trio.move_on_after(HELPER_END_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    if process.stdout is not None:
        await process.stdout.aclose()
