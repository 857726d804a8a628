"""Media: what pixels and sound cost as base64 in a line, and as a sealed memfd beside it.

A picture of twelve megapixels and ten minutes of sound go both ways, each time in a process
of its own: the line is read, the medium is made, and its descriptor goes through a
socketpair to a thread that stands for a worker and reads all of it. Tells the milliseconds,
the longest time for which the loop was held, and the memory that the process came to take
beside what the client's own copy takes.

    python -m bench.media                       # the daemon's own path, without a daemon
    python -m bench.media --socket PATH/infer.v2.sock   # a daemon's answers, both ways
"""

import argparse
import array
import base64
import fcntl
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import trio
import trio.lowlevel

from inferd.backend.job import GenerateJob, Media, Sampling, Turn
from inferd.engine.channel.transport import MessageWriter
from inferd.ipc.worker import Prepare
from inferd.server.media.attachments import AttachmentFile
from inferd.wire.blocks import AudioAttachment, BlocksRequest, ImageAttachment
from inferd.worker.channel import WorkerChannel, close_fds

WIDTH: Final = 4000
HEIGHT: Final = 3000
SAMPLE_RATE: Final = 16_000
SOUND_S: Final = 600
CASES: Final = {
    "image": WIDTH * HEIGHT * 3,
    "audio": SOUND_S * SAMPLE_RATE * 4,
}
"""Bytes of a picture of twelve megapixels, and of ten minutes of sound."""
WAYS: Final = ("base64", "memfd")
RUNS: Final = 5
READ_BYTES: Final = 1024 * 1024


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="What media cost, both ways.")
    parser.add_argument("--socket", type=Path, help="of a daemon that takes both")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "WAY"), help="for ourselves")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(trio.run(passed_once, *options.one)))
        return
    for case in CASES:
        for way in WAYS:
            if options.socket:
                show(
                    case,
                    way,
                    [asked_once(options.socket, case, way) for _ in range(RUNS)],
                )
            else:
                show(case, way, [in_process(case, way) for _ in range(RUNS)])


def show(case: str, way: str, runs: list[dict[str, float]]) -> None:
    """Print the median of some runs."""
    figures = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    text = ", ".join(f"{value:.1f} {key}" for key, value in figures.items())
    print(f"{case:6} {way:7} {text}")  # a program


def in_process(case: str, way: str) -> dict[str, float]:
    """Measure in a process of its own, so that its memory is of this alone."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.media", "--one", case, way],
        check=True,
        capture_output=True,
    )
    return dict(json.loads(done.stdout))


# --- without a daemon -------------------------------------------------------------------


async def passed_once(case: str, way: str) -> dict[str, float]:
    """Bring a medium from a line to one who reads it."""
    line, fds = request(case, way)
    before_kib = memory_before_kib()
    outbox, reader = open_link()
    held_ms = [0.0]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, held_ms)
        await trio.lowlevel.checkpoint()
        began_s = time.perf_counter()
        parsed = msgspec.json.decode(line, type=BlocksRequest)
        [attachment] = parsed.attachments
        assert isinstance(attachment, ImageAttachment | AudioAttachment)  # noqa: S101
        parsed_s = time.perf_counter()
        medium = await medium_of(attachment, fds)
        outbox.send(Prepare(ticket=1, job=job(medium)), [medium.fd])
        made_s = time.perf_counter()
        await trio.to_thread.run_sync(reader.join)
        read_s = time.perf_counter()
        nursery.cancel_scope.cancel()
    after_kib = memory_kib("VmHWM")
    return {
        "ms to read the line": (parsed_s - began_s) * 1000,
        "ms to make the medium": (made_s - parsed_s) * 1000,
        "ms until it is read": (read_s - made_s) * 1000,
        "ms held at most": held_ms[0],
        "MiB of line": len(line) / 2**20,
        "MiB of process beside": (after_kib - before_kib) / 1024,
        "MiB of memfd": 0 if fds else medium.n_bytes / 2**20,
    }


def open_link() -> tuple[MessageWriter, threading.Thread]:
    """Open a socketpair with one who reads media at its other end."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003  # socket's own signature
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    reader = threading.Thread(target=read_all, args=(theirs,))
    reader.start()
    return MessageWriter(stream), reader


def memory_before_kib() -> int:
    """Forget the peak so far; tell what we have."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_kib("VmRSS")


def memory_kib(what: str) -> int:
    """Tell what the kernel knows of our memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [each for each in lines if each.startswith(what + ":")]
    return int(line.split()[1])


async def medium_of(
    attachment: ImageAttachment | AudioAttachment, fds: list[int]
) -> AttachmentFile:
    """Make what a worker is given."""
    if fds:
        return AttachmentFile.from_fd(attachment, fds[0])
    return await AttachmentFile.from_base64(attachment)


async def watch(held_ms: list[float]) -> None:
    """Note for how long the loop was held at most, once the line is read."""
    await trio.lowlevel.checkpoint()
    while True:
        before_s = time.perf_counter()
        await trio.lowlevel.checkpoint()
        held_ms[0] = max(held_ms[0], (time.perf_counter() - before_s) * 1000)


def read_all(sock: socket.socket) -> None:
    """Read a job's media as a worker does."""
    received = WorkerChannel(sock).receive()
    assert received is not None  # noqa: S101  # we sent it
    for fd in received.fds:
        place = 0
        while data := os.pread(fd, READ_BYTES, place):
            place += len(data)
    close_fds(received.fds)


def job(medium: AttachmentFile) -> GenerateJob:
    """Make a job that shows it."""
    return GenerateJob(
        turns=[Turn("user", "what is it?")],
        media=(Media(kind="image", id="a", n_bytes=medium.n_bytes),),
        max_tokens=1,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )


# --- what a client sends ----------------------------------------------------------------


def request(case: str, way: str) -> tuple[bytes, list[int]]:
    """Write a request as a line, with the descriptors that go with it."""
    n_bytes = CASES[case]
    facts: dict[str, Any] = {"id": "a", "kind": case}
    facts |= (
        {"width": WIDTH, "height": HEIGHT}
        if case == "image"
        else {"sample_rate": SAMPLE_RATE}
    )
    fds: list[int] = []
    if way == "memfd":
        fds = [sealed(n_bytes)]
        facts["fd"] = 0
    else:
        facts["bytes"] = base64.b64encode(bytes(n_bytes)).decode()
    content = [{"type": case, "attachment_id": "a"}]
    whole = {
        "id": "r",
        "messages": [{"role": "user", "content": content}],
        "attachments": [facts],
    }
    return json.dumps(whole).encode() + b"\n", fds


def sealed(n_bytes: int) -> int:
    """Make a sealed memfd of so many bytes, all of them in memory."""
    fd = os.memfd_create("bench", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    part = bytes(READ_BYTES)
    while n_bytes > 0:
        n_bytes -= os.write(fd, part[:n_bytes])
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


# --- with a daemon ----------------------------------------------------------------------


def asked_once(path: Path, case: str, way: str) -> dict[str, float]:
    """Ask a daemon, and wait for the first frame and for the last."""
    line, fds = request(case, way)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        began_s = time.perf_counter()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        n_sent = sock.sendmsg([line[:1]], rights if fds else [])
        sock.sendall(line[n_sent:])
        sent_s = time.perf_counter()
        answer = sock.makefile("rb")
        first = json.loads(answer.readline())
        first_s = time.perf_counter()
        while first["type"] not in ("done", "error"):
            first = json.loads(answer.readline())
        done_s = time.perf_counter()
    close_fds(fds)
    if first["type"] == "error":
        sys.exit(f"{case} {way}: {first['message']}")
    return {
        "ms to send": (sent_s - began_s) * 1000,
        "ms to the first frame": (first_s - began_s) * 1000,
        "ms to the end": (done_s - began_s) * 1000,
        "MiB of line": len(line) / 2**20,
    }


if __name__ == "__main__":
    main()
