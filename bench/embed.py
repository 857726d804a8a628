"""Embeddings: the daemon's embed socket ÷ llama.cpp's own server, on the same file.

Both serve at the same time, with the same number of threads, and take turns; a round's
other load on the machine is shown, since it spoils the figures. Texts come all in one
request, one in each request, and so many at a time in between.

    python -m bench.embed                     # the embedded model, 5 rounds
    python -m bench.embed --tune              # which options suit the peer best here
"""

import argparse
import http.client
import json
import math
import os
import random
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from bench.daemon import RunningDaemon, connected, cpu_s, running_daemon
from bench.peers.llama_server import RunningServer, running_server
from bench.quiet import Measured, undisturbed
from inferd import surfaces
from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.config.load import locate_model

SEED: Final = 20_261_121
WORDS: Final = (
    "the a one every some old young quiet bright distant small heavy green silver warm "
    "keeper sailor teacher child farmer doctor painter river lighthouse harbour garden "
    "market library mountain winter morning letter machine engine bridge window story "
    "finds carries repairs remembers paints watches opens follows builds sells answers "
    "slowly often never again before after under beyond beside near with without and"
)
SHORTEST: Final = 5
LONGEST: Final = 20
"""Words of a text."""
SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
READ_BYTES: Final = 1024 * 1024
GOALS: Final = {"all": 1.05, "one": 1.5}
"""Ratios to reach with all texts in one request, and with one in each."""
ALIKE: Final = 0.999
"""Cosine that the two sides' vectors of one text have at least."""
EMBEDDING: Final = ("--embeddings", "--pooling", "mean", "--log-disable")
UBATCHES: Final = (512, 2048)
SLOTS: Final = (1, 8, 16, 32, 64)
SLOT_TOKENS: Final = 512
"""Context of each of the peer's slots: the embedded model's own."""


class Side(Protocol):
    """Who turns texts into vectors."""

    def body(self, texts: Sequence[str]) -> bytes:
        """Write a request."""

    def ask(self, body: bytes) -> bytes:
        """Send it; give the whole answer, which is none of an error."""

    def vectors(self, answer: bytes) -> list[list[float]]:
        """Read an answer."""

    def cpu_s(self) -> float:
        """Give the processor time that its processes have taken."""


class Speed(NamedTuple):
    """How one side did."""

    texts_per_s: float
    cores: float
    """Processor time that it took, by the time on the wall."""


class Turn(NamedTuple):
    """Both sides, one right after the other."""

    ours: Speed
    peer: Speed

    @property
    def ratio(self) -> float:
        """How many times faster ours was."""
        return self.ours.texts_per_s / self.peer.texts_per_s


def main() -> int:
    """Run the rounds, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded:embed", help="or a GGUF file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tries", type=int, default=3, help="at a quiet moment")
    parser.add_argument("--ubatch", type=int, default=512, help="the peer's")
    parser.add_argument("--slots", type=int, default=32, help="the peer's")
    parser.add_argument("--tune", action="store_true")
    arguments = parser.parse_args()
    settings = locate_model(LlamaCppSettings(name="embed", model=arguments.model))
    model = Path(settings.model)
    if arguments.tune:
        tune(model, arguments)
        return 0
    with (
        our_side(model, arguments.threads) as ours,
        peer_side(model, arguments) as peer,
    ):
        check_alike(ours, peer)
        print(json.dumps(compare(ours, peer, arguments), indent=2))
    return 0


def texts(n_texts: int) -> list[str]:
    """Make short texts, the same ones each time."""
    chance = random.Random(SEED)  # noqa: S311  # nobody's secret
    words = WORDS.split()
    return [
        " ".join(chance.choices(words, k=chance.randint(SHORTEST, LONGEST)))
        for _ in range(n_texts)
    ]


def compare(
    ours: Side, peer: Side, arguments: argparse.Namespace
) -> dict[str, dict[str, object]]:
    """Take turns with every size of request; give the figures of each."""
    sizes = sorted({*arguments.sizes, 1, arguments.texts})
    turns: dict[int, list[Measured[Turn]]] = {size: [] for size in sizes}
    for number in range(arguments.rounds):
        for size in sizes:
            measure = partial(turn, ours, peer, arguments.texts, size, number)
            measured = undisturbed(measure, tries=arguments.tries)
            tell(measured, size, number)
            turns[size].append(measured)
    return {
        f"{size} texts a request": figures(turns[size], goal_of(size, arguments.texts))
        for size in sizes
    }


def turn(ours: Side, peer: Side, n_texts: int, size: int, number: int) -> Turn:
    """Measure both once, the first to go being another each time."""
    if number % 2:
        our_speed, peer_speed = speed(ours, n_texts, size), speed(peer, n_texts, size)
    else:
        peer_speed, our_speed = speed(peer, n_texts, size), speed(ours, n_texts, size)
    return Turn(our_speed, peer_speed)


def tell(measured: Measured[Turn], size: int, number: int) -> None:
    """Print one turn."""
    ours, peer = measured.value
    print(
        f"round {number + 1}, {size} a request: "
        f"daemon {ours.texts_per_s:.1f} texts/s on {ours.cores:.2f} cores, "
        f"peer {peer.texts_per_s:.1f} on {peer.cores:.2f}, "
        f"ratio {measured.value.ratio:.3f}, "
        f"other processes {measured.others:.2f} cores",
        file=sys.stderr,
    )


def speed(side: Side, n_texts: int, size: int) -> Speed:
    """Measure one side with so many texts a request, one after another."""
    all_texts = texts(n_texts)
    bodies = [
        side.body(all_texts[start : start + size]) for start in range(0, n_texts, size)
    ]
    cpu_before_s = side.cpu_s()
    began_at = time.perf_counter()
    for body in bodies:
        side.ask(body)
    wall_s = time.perf_counter() - began_at
    return Speed(n_texts / wall_s, (side.cpu_s() - cpu_before_s) / wall_s)


def goal_of(size: int, n_texts: int) -> float | None:
    """Give the ratio to reach."""
    return {1: GOALS["one"], n_texts: GOALS["all"]}.get(size)


def figures(turns: list[Measured[Turn]], goal: float | None) -> dict[str, object]:
    """Give medians and the spread of the paired ratios."""
    ratios = sorted(each.value.ratio for each in turns)
    return {
        "daemon": medians([each.value.ours for each in turns]),
        "peer": medians([each.value.peer for each in turns]),
        "ratios": {
            "min": round(ratios[0], 3),
            "median": round(statistics.median(ratios), 3),
            "max": round(ratios[-1], 3),
        },
        **({"goal": goal} if goal else {}),
        "disturbed_rounds": sum(each.is_disturbed for each in turns),
        "rounds": len(turns),
    }


def medians(speeds: list[Speed]) -> dict[str, float]:
    """Give the middle of one side's speeds."""
    return {
        "texts_per_s": round(statistics.median(each.texts_per_s for each in speeds), 1),
        "cores": round(statistics.median(each.cores for each in speeds), 2),
    }


def check_alike(ours: Side, peer: Side) -> None:
    """Warm both up, and see that they do the same work."""
    some = texts(64)
    sides = [side.vectors(side.ask(side.body(some))) for side in (ours, peer)]
    for text, our_vector, peer_vector in zip(some, *sides, strict=True):
        if cosine(our_vector, peer_vector) < ALIKE:
            sys.exit(f"the two sides give different vectors of {text!r}")


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Give the cosine of the angle between two vectors."""
    dot = sum(a * b for a, b in zip(left, right, strict=True))
    return dot / (math.hypot(*left) * math.hypot(*right))


# --- the daemon -------------------------------------------------------------------------


@contextmanager
def our_side(model: Path, threads: int) -> Iterator["OurSide"]:
    """Run a daemon with one connection to its embed socket while inside."""
    tables = (
        f'[[backend]]\nname = "embed"\nkind = "llamacpp"\n'
        f"model = {json.dumps(str(model))}\nn_threads = {threads}\n"
    )
    with (
        running_daemon(tables, surfaces.EMBED.socket) as daemon,
        connected(daemon.directory / surfaces.EMBED.socket) as sock,
    ):
        yield OurSide(sock, daemon)


class OurSide:
    """The daemon: a line out, a line in."""

    def __init__(self, sock: socket.socket, daemon: RunningDaemon) -> None:
        self._sock = sock
        self._pids = [daemon.pid, *daemon.worker_pids]

    def cpu_s(self) -> float:
        """Give the processor time that the daemon and its worker have taken."""
        return sum(map(cpu_s, self._pids))

    def body(self, texts: Sequence[str]) -> bytes:
        """Write a request."""
        return json.dumps({"id": "bench", "input": texts}).encode() + b"\n"

    def ask(self, body: bytes) -> bytes:
        """Send it; give the answer's line."""
        self._sock.sendall(body)
        answer = bytearray()
        while not answer.endswith(b"\n"):
            data = self._sock.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the daemon closed the connection")
            answer += data
        if not answer.startswith(b'{"type":"embeddings"'):
            raise ValueError(bytes(answer[:200]))
        return bytes(answer)

    def vectors(self, answer: bytes) -> list[list[float]]:
        """Read an answer."""
        return list(json.loads(answer)["embeddings"])


# --- the peer ---------------------------------------------------------------------------


@contextmanager
def peer_side(model: Path, arguments: argparse.Namespace) -> Iterator["PeerSide"]:
    """Run the peer with one connection to it while inside."""
    options = (
        *(*EMBEDDING, "--parallel", str(arguments.slots)),
        *("--ctx-size", str(arguments.slots * SLOT_TOKENS)),
        *(
            "--batch-size",
            str(arguments.ubatch),
            "--ubatch-size",
            str(arguments.ubatch),
        ),
    )
    with running_server(model, threads=arguments.threads, extra_args=options) as server:
        yield PeerSide(server)


class PeerSide:
    """The peer: HTTP on one connection that is kept, as far as the peer keeps it."""

    def __init__(self, server: RunningServer) -> None:
        self._pid = server.pid
        self._connection = http.client.HTTPConnection(server.address)

    def cpu_s(self) -> float:
        """Give the processor time that the server has taken."""
        return cpu_s(self._pid)

    def body(self, texts: Sequence[str]) -> bytes:
        """Write a request's body."""
        return json.dumps({"input": texts}).encode()

    def ask(self, body: bytes) -> bytes:
        """Send it; give the answer's body."""
        try:
            response = self._post(body)
        except ConnectionError:  # it closes one that was idle for 5 seconds
            self._connection.close()
            response = self._post(body)
        answer = response.read()
        if response.status != http.client.OK:
            raise ValueError(answer[:200])
        return answer

    def _post(self, body: bytes) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", "/v1/embeddings", body, headers)
        return self._connection.getresponse()

    def vectors(self, answer: bytes) -> list[list[float]]:
        """Read an answer."""
        entries = sorted(json.loads(answer)["data"], key=lambda entry: entry["index"])
        return [entry["embedding"] for entry in entries]


def tune(model: Path, arguments: argparse.Namespace) -> None:
    """Measure the peer alone with each choice of its options."""
    for ubatch, slots in product(UBATCHES, SLOTS):
        arguments.ubatch, arguments.slots = ubatch, slots
        with peer_side(model, arguments) as peer:
            peer.ask(peer.body(texts(64)))
            for size in (arguments.texts, 1):
                measure = partial(speed, peer, arguments.texts, size)
                speeds = [
                    undisturbed(measure, tries=arguments.tries)
                    for _ in range(arguments.rounds)
                ]
                print(
                    f"--ubatch {ubatch} --slots {slots}, {size} a request: "
                    f"{medians([each.value for each in speeds])}, "
                    f"{sum(each.is_disturbed for each in speeds)} rounds disturbed",
                    flush=True,
                )


if __name__ == "__main__":
    sys.exit(main())
