"""Single-stream decode: over the socket ÷ the same loop called directly.

A daemon with a real worker, and the worker's backend in a process of its own, write the
same greedy answer in turns. Prints each round's rates and the ratio of the medians; a
round's other load on the machine is shown, since it spoils the figures.

    python -m bench.decode     # the embedded chat model, 9 rounds of 256 tokens
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.quiet import other_cpu_s
from inferd.cli.commands.demo import private_daemon
from inferd.client.sync import FrameClient
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.load import locate_model
from inferd.wire.requests import ChatMessage, GenerateRequest
from inferd.wire.responses import DoneFrame, ProgressFrame, TokenFrame

PROMPT = "Write a long story about a lighthouse keeper and the sea."
DIRECT = "--direct"


def main() -> int:
    """Run the rounds, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument(DIRECT, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.direct:
        serve_direct(arguments.tokens)
        return 0
    command = [
        sys.executable,
        "-m",
        "bench.decode",
        DIRECT,
        "--tokens",
        str(arguments.tokens),
    ]
    with (
        tempfile.TemporaryDirectory(prefix="inferd-bench-") as scratch,
        private_daemon(Path(scratch) / "run"),
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as direct,
        FrameClient(Path(scratch) / "run") as client,
    ):
        report(
            rounds=arguments.rounds,
            over_socket=lambda: ask(client, arguments.tokens),
            directly=lambda: order(direct),
        )
        direct.stdin.close()  # type: ignore[union-attr]  # asked for above
    return 0


def report(
    *, rounds: int, over_socket: Callable[[], float], directly: Callable[[], float]
) -> None:
    """Take turns, then print medians, quartiles and the ratio."""
    over_socket()
    directly()
    pairs: list[tuple[float, float]] = []
    for number in range(rounds):
        before = other_cpu_s(), time.monotonic()
        pair = (
            (over_socket(), directly())
            if number % 2
            else (directly(), over_socket())[::-1]
        )
        pairs.append(pair)
        others = (other_cpu_s() - before[0]) / (time.monotonic() - before[1])
        print(
            f"round {number + 1}: socket {pair[0]:.1f}, direct {pair[1]:.1f} tokens/s, "
            f"ratio {pair[0] / pair[1]:.3f}, other processes {others:.2f} cores",
            file=sys.stderr,
        )
    socket_rates, direct_rates = map(list, zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    print(
        json.dumps(
            {
                "socket_tokens_per_s": round(statistics.median(socket_rates), 1),
                "direct_tokens_per_s": round(statistics.median(direct_rates), 1),
                "ratio_of_medians": round(
                    statistics.median(socket_rates) / statistics.median(direct_rates), 3
                ),
                "ratios": {
                    "min": round(ratios[0], 3),
                    "median": round(statistics.median(ratios), 3),
                    "max": round(ratios[-1], 3),
                },
                "rounds": rounds,
            },
            indent=2,
        )
    )


def ask(client: FrameClient, n_tokens: int) -> float:
    """Give the rate of one answer over the socket, in tokens/s after the first."""
    request = GenerateRequest(
        id="bench",
        messages=[ChatMessage("user", PROMPT)],
        temperature=0,
        max_tokens=n_tokens,
    )
    first_at: float | None = None
    n_written = 0
    for frame in client.generate(request):
        match frame:
            case TokenFrame():
                first_at = first_at or time.perf_counter()
            case DoneFrame(usage=usage):
                n_written = usage.completion_tokens
            case ProgressFrame():
                pass  # not asked for
    return (n_written - 1) / (time.perf_counter() - (first_at or 0))


def order(direct: subprocess.Popen[str]) -> float:
    """Have the other process write the answer; it tells its rate."""
    print(file=direct.stdin, flush=True)
    return float(direct.stdout.readline())  # type: ignore[union-attr]  # asked for above


def serve_direct(n_tokens: int) -> None:
    """Write the answer once for each line on stdin, with the backend in this process."""
    from inferd.backend.job import GenerateJob, Sampling, Turn  # noqa: PLC0415
    from inferd.ipc.worker import Step  # noqa: PLC0415
    from inferd.worker.llama.backend import LlamaBackend  # noqa: PLC0415

    settings = locate_model(LlamaCppSettings(name="chat"))
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    backend = LlamaBackend(settings, n_slots=len(os.sched_getaffinity(0)))
    backend.load(lambda _: None)
    job = GenerateJob(
        turns=[Turn("user", PROMPT)],
        max_tokens=n_tokens,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )
    for _ in sys.stdin:
        backend.start(1, backend.prepare(job))
        first_at: float | None = None
        n_written = 0
        while backend.is_busy:
            for step in backend.step():
                if isinstance(step, Step) and step.pieces:
                    n_written += len(step.pieces)
                    first_at = first_at or time.perf_counter()
        print((n_written - 1) / (time.perf_counter() - (first_at or 0)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
