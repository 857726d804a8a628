"""Frames through the daemon: how many a second, and what one costs its process.

A daemon with a scripted worker writes long answers as fast as it can; a third process
reads raw bytes and counts newlines, so that no client's work is in the daemon's time. The
figure to judge is frames per second of the daemon's own processor time: what it would do
on a core of its own. All three processes want a core, and the machine may have fewer.

    python -m bench.frames                    # one client, then sixteen
    python -m bench.frames --delay-ms 1       # tokens that come alone, as a model's do
    python -m bench.frames --profile          # where the daemon's time goes; needs py-spy
"""

import argparse
import json
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.daemon import RunningDaemon, connected, cpu_s, running_daemon
from bench.quiet import other_cpu_s
from inferd import surfaces

CLIENT: Final = "--client"
READ_BYTES: Final = 256 * 1024
ROUND_FRAMES: Final = 320_000
"""Frames of a round: enough for processor time that is counted in hundredths."""
SAMPLES_PER_S: Final = 200
TAIL_BYTES: Final = 1024
TOP: Final = 25
ALL: Final = 0.97
"""Share of the samples from which on a function says nothing: the program's own main."""
WORDS: Final = (" the", " lamp", " turned", " and", " a", " ship", " passed", ",", ".")
"""The script's tokens, repeated: as long as a model's are."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round: every client had its answers."""

    n_frames: int
    wall_s: float
    daemon_s: float
    """Processor time of the daemon's process."""
    worker_s: float
    """Processor time of the worker's."""
    others: float
    """Cores that the rest of the machine used meanwhile."""

    @property
    def frames_per_s(self) -> float:
        """Frames by the clock on the wall."""
        return self.n_frames / self.wall_s

    @property
    def frames_per_daemon_s(self) -> float:
        """Frames per second of the daemon's processor time."""
        return self.n_frames / self.daemon_s


def main() -> int:
    """Measure each number of clients; print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--tokens", type=int, default=20_000, help="in one answer")
    parser.add_argument("--answers", type=int, help="of each client in a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--delay-ms", type=int, default=0, help="before each token")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(CLIENT, type=Path, metavar="SOCKET", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        serve_client(arguments)
        return 0
    figures = [
        measure(n_clients, arguments)
        for n_clients in arguments.clients  # one daemon each: none has a past
    ]
    print(json.dumps(figures, indent=2))
    return 0


def measure(n_clients: int, arguments: argparse.Namespace) -> dict[str, object]:
    """Run the rounds of one number of clients."""
    tables = script(arguments.tokens, arguments.delay_ms, n_clients)
    with (
        running_daemon(tables, surfaces.INFER.socket) as daemon,
        client_process(daemon, n_clients, arguments) as client,
    ):
        take_round(daemon, client)
        with profiled(daemon.pid, wanted=arguments.profile):
            rounds = [take_round(daemon, client) for _ in range(arguments.rounds)]
    return {"clients": n_clients, "tokens": arguments.tokens, **summary(rounds)}


def script(n_tokens: int, delay_ms: int, n_clients: int) -> str:
    """Configure a worker that says so many tokens to so many at once."""
    tokens = [WORDS[index % len(WORDS)] for index in range(n_tokens)]
    return (
        f"[admission]\nmax_active = {n_clients}\n"
        f'[[backend]]\nname = "mock"\nkind = "mock"\ntoken_delay_ms = {delay_ms}\n'
        f"tokens = {json.dumps(tokens)}\n"
    )


def summary(rounds: list[Round]) -> dict[str, object]:
    """Give the medians, and the least and the most where it matters."""
    n_frames = rounds[0].n_frames
    return {
        "frames_per_s": spread([each.frames_per_s for each in rounds]),
        "frames_per_daemon_cpu_s": spread(
            [each.frames_per_daemon_s for each in rounds]
        ),
        "daemon_cpu_s_per_1000_frames": round(
            statistics.median(each.daemon_s for each in rounds) * 1000 / n_frames, 4
        ),
        "worker_cpu_s_per_1000_frames": round(
            statistics.median(each.worker_s for each in rounds) * 1000 / n_frames, 4
        ),
        "other_cores": spread([each.others for each in rounds], digits=2),
        "rounds": len(rounds),
    }


def spread(values: list[float], *, digits: int | None = None) -> dict[str, float]:
    """Give the middle of some values and their ends."""
    return {
        "min": round(min(values), digits),
        "median": round(statistics.median(values), digits),
        "max": round(max(values), digits),
    }


def take_round(daemon: RunningDaemon, client: subprocess.Popen[str]) -> Round:
    """Have every client read its answers."""
    pids = [daemon.pid, *daemon.worker_pids]
    before, others_before = [cpu_s(pid) for pid in pids], other_cpu_s()
    began_at = time.monotonic()
    print(file=client.stdin, flush=True)
    n_frames, wall_s = client.stdout.readline().split()  # type: ignore[union-attr]  # asked for below
    elapsed_s = time.monotonic() - began_at
    daemon_s, *workers_s = [
        cpu_s(pid) - then for pid, then in zip(pids, before, strict=True)
    ]
    taken = Round(
        n_frames=int(n_frames),
        wall_s=float(wall_s),
        daemon_s=daemon_s,
        worker_s=sum(workers_s),
        others=(other_cpu_s() - others_before) / elapsed_s,
    )
    print(
        f"{taken.n_frames} frames: {taken.frames_per_s:,.0f}/s, "
        f"{taken.frames_per_daemon_s:,.0f} per CPU second of the daemon "
        f"({taken.daemon_s / taken.wall_s:.2f} cores; worker "
        f"{taken.worker_s / taken.wall_s:.2f}), "
        f"other processes {taken.others:.2f} cores",
        file=sys.stderr,
    )
    return taken


# --- the client -------------------------------------------------------------------------


@contextmanager
def client_process(
    daemon: RunningDaemon, n_clients: int, arguments: argparse.Namespace
) -> Iterator[subprocess.Popen[str]]:
    """Start the process of all clients: a line in, frames and seconds out."""
    n_tokens = arguments.tokens
    n_answers = arguments.answers or max(1, ROUND_FRAMES // (n_clients * n_tokens))
    command = [
        *(sys.executable, "-m", "bench.frames"),
        *(
            CLIENT,
            str(daemon.directory / surfaces.INFER.socket),
            "--clients",
            str(n_clients),
        ),
        *("--tokens", str(n_tokens), "--answers", str(n_answers)),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]  # asked for above


def serve_client(arguments: argparse.Namespace) -> None:
    """Read the answers on all connections for each line on stdin."""
    socks = [connected(arguments.client) for _ in range(arguments.clients[0])]
    message = {"role": "user", "content": "go on"}
    request = {"id": "bench", "messages": [message], "max_tokens": arguments.tokens}
    line = json.dumps(request).encode() + b"\n"
    for _ in sys.stdin:
        began_at = time.perf_counter()
        n_frames = read_all(socks, line, arguments.answers)
        print(n_frames, time.perf_counter() - began_at, flush=True)


def read_all(socks: list[socket.socket], line: bytes, n_answers: int) -> int:
    """Have so many answers on each connection, one after another; count the frames."""
    n_frames = 0
    answers = [Answers(sock, line, n_answers) for sock in socks]
    with selectors.DefaultSelector() as waiting:
        for each in answers:
            waiting.register(each.sock, selectors.EVENT_READ, each)
            each.ask()
        while waiting.get_map():
            for key, _ in waiting.select():
                n_frames += key.data.read()
                if not key.data.n_left:
                    waiting.unregister(key.fileobj)
    return n_frames


class Answers:
    """The answers on one connection."""

    def __init__(self, sock: socket.socket, line: bytes, n_answers: int) -> None:
        self.sock = sock
        self.n_left = n_answers
        self._line = line
        self._tail = b""

    def ask(self) -> None:
        """Ask for the next one."""
        self.sock.sendall(self._line)

    def read(self) -> int:
        """Read what is there; give the number of frames that it ends."""
        data = self.sock.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the daemon closed the connection")
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if is_end(self._tail):
            self._tail = b""
            self.n_left -= 1
            if self.n_left:
                self.ask()
        return data.count(b"\n")


def is_end(tail: bytes) -> bool:
    """Tell whether the last bytes of an answer are those of its terminal frame."""
    return tail.endswith(b"}\n") and b'"stop_reason"' in tail


# --- the profile ------------------------------------------------------------------------


@contextmanager
def profiled(pid: int, *, wanted: bool) -> Iterator[None]:
    """Sample a process from outside while inside; then print where it was found.

    Samples, not a tracer: one that follows each call would make the small functions look
    dear and the system calls cheap.
    """
    if not wanted:
        yield
        return
    sampler = shutil.which("py-spy")
    if sampler is None:
        sys.exit(
            "--profile needs py-spy: "
            "pip install --constraint constraints.txt --target DIR py-spy, "
            "then put DIR/bin into PATH"
        )
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        command = [
            *(sampler, "record", "--pid", str(pid), "--rate", str(SAMPLES_PER_S)),
            *("--duration", "3600", "--format", "raw"),
            *("--output", file.name),
        ]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as recorder:
            yield
            recorder.send_signal(2)  # it writes at Ctrl-C
            recorder.wait(60)
        print_profile(Path(file.name).read_text().splitlines())


def print_profile(stacks: list[str]) -> None:
    """Print the lines where samples ended, and the functions they went through."""
    lines: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for stack in filter(in_event_loop, stacks):
        path, _, n_samples = stack.rpartition(" ")
        frames = path.split(";")
        lines[frames[-1]] += int(n_samples)
        for function in {each.rpartition(":")[0] + ")" for each in frames}:
            functions[function] += int(n_samples)
    total = max(1, lines.total())
    for title, counter in (("in this line itself", lines), ("in or below", functions)):
        print(f"\n{title}, of {total} samples:", file=sys.stderr)
        shares = [(name, count / total) for name, count in counter.most_common()]
        for name, share in [each for each in shares if each[1] < ALL][:TOP]:
            print(f"{share:6.1%}  {name}", file=sys.stderr)


def in_event_loop(stack: str) -> bool:
    """Tell the thread that serves from the one that writes the log."""
    return "trio/_core/_run.py" in stack


if __name__ == "__main__":
    sys.exit(main())
