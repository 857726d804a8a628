"""R21: a model replaced under load, and two that take turns: nobody fails, no memory stays."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import trio

from fuzz.process import rss_bytes
from tests.daemon.configuration import to_toml
from tests.daemon.harness import Frame, llamacpp
from tests.model.tiny import write_tiny_model
from torture.clients import Answer, Question, ask, text
from torture.litter import check_left, settled
from torture.load import eventually
from torture.outcome import Context
from torture.victim import Victim, running

KEY: Final = "R21"
NAME: Final = "Models replaced and taking turns under the load of 16 clients"

MIB: Final = 1 << 20
N_CLIENTS: Final = 16
SAMPLE_S: Final = 0.05
"""Seconds between two looks at the memory of the processes."""
LOAD_S: Final = 600.0
"""Seconds that a command of an operator may take."""
TURNS_S: Final = 900.0
"""Seconds for all turns."""


class Rules(NamedTuple):
    """How two models take turns."""

    wait_s: float
    residency_s: float
    n_turns: int
    """After so many, clients ask no more."""


SHORT_TURNS: Final = Rules(wait_s=1.0, residency_s=0.5, n_turns=4)
FULL_TURNS: Final = Rules(wait_s=5.0, residency_s=8.0, n_turns=12)
"""A model that takes seconds to load would serve two requests a turn by the short rules, and
the last of 16 clients would wait for a minute."""
ADMISSION: Final = {"max_active": 2, "max_queued": 4 * N_CLIENTS}
WITHOUT_CACHES: Final = {"prompt_cache_mb": 0, "pause_mb": 0, "n_ctx": 512}


def run(context: Context) -> None:
    """Swap models under load, then have two take turns."""
    with models(context) as files:
        budget = one_and_a_half(files[0])
        trio.run(_swap, context, files, budget)
        trio.run(_take_turns, context, files, budget)


@contextmanager
def models(context: Context) -> Iterator[Sequence[str]]:
    """Give two models; in full two tables of the embedded one, which has weights to free."""
    with TemporaryDirectory(prefix="models-") as directory:
        tiny = (
            str(write_tiny_model(Path(directory) / f"{seed}.gguf", seed=seed))
            for seed in (1, 2)
        )
        yield [*context.pick(short=tiny, full=iter(["embedded:chat"] * 2))]


def tables(files: Sequence[str], **settings: object) -> list[Frame]:
    """Make backends of which no two are equal."""
    return [
        llamacpp(file, name=f"m{at}", draft_max=at + 1, **WITHOUT_CACHES, **settings)
        for at, file in enumerate(files)
    ]


def one_and_a_half(file: str) -> int:
    """Give the bytes that one model fits into, and two do not."""
    with running(Victim({"backend": tables([file]), "admission": ADMISSION})) as daemon:
        metrics = daemon.admin().order("metrics")["text"].splitlines()
    [needed] = [each for each in metrics if each.startswith("inferd_memory_needed_b")]
    return int(float(needed.split()[1]) * 1.5)


class Memory:
    """The memory of a daemon and of its workers, now and at most."""

    def __init__(self, context: Context, daemon: Victim, what: str) -> None:
        self._context, self._daemon, self._what = context, daemon, what
        self._most = (0, 0)

    def now(self) -> tuple[int, int]:
        """Give the bytes of the daemon, and of all workers together."""
        workers = sum(_rss(pid) for pid in self._daemon.workers())
        return rss_bytes(self._daemon.pid), workers

    async def sample(self) -> None:
        """Look again and again until cancelled."""
        while True:
            daemon, workers = self.now()
            self._most = max(daemon, self._most[0]), max(workers, self._most[1])
            await trio.sleep(SAMPLE_S)

    def report(self, moment: str, n_bytes: tuple[int, int] | None = None) -> None:
        """Report a moment; by default the most that was seen."""
        daemon, workers = n_bytes or self._most
        figures, name = self._context.figures, f"{self._what}_{moment}"
        figures[f"{name}_daemon_mib"] = round(daemon / MIB, 1)
        figures[f"{name}_workers_mib"] = round(workers / MIB, 1)
        pids = [self._daemon.pid, *self._daemon.workers()]
        figures[f"{name}_swap_mib"] = round(sum(map(_swapped, pids)) / MIB, 1)


def _rss(pid: int) -> int:
    try:
        return rss_bytes(pid)
    except (OSError, IndexError):  # it has just ended
        return 0


def _swapped(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(each.split()[1]) * 1024 for each in lines if each[:6] == "VmSwap")


class Clients:
    """Clients that ask one request after another, and count how each ended."""

    def __init__(self, context: Context, daemon: Victim, what: str) -> None:
        self._context, self._daemon, self._what = context, daemon, what
        self.is_over = False
        self.seconds: list[float] = []

    async def run(self, questions: Sequence[Question]) -> None:
        """Ask until ``is_over``, each client beginning with another question."""
        async with trio.open_nursery() as nursery:
            for client in range(N_CLIENTS):
                nursery.start_soon(self._ask_on, client, questions)

    async def _ask_on(self, client: int, questions: Sequence[Question]) -> None:
        for number in itertools.count():
            if self.is_over:
                return
            question = questions[(client + number) % len(questions)]
            self._enter(
                await ask(self._daemon.directory, question, f"{client}-{number}")
            )

    def count(self, what: str, number: int, *, at_least: int) -> None:
        """Report how often something happened, and require that it did."""
        self._context.counts[what] = number
        self._context.require(number >= at_least, f"{what}: {number}")

    def _enter(self, answer: Answer) -> None:
        counts, name = self._context.counts, f"{self._what}_asked"
        counts[name] = counts.get(name, 0) + 1
        is_done = answer.is_whole and not answer.code and answer.n_terminal == 1
        self._context.require(is_done, f"{self._what}: ended in {answer.last}")
        self.seconds.append(answer.seconds)


async def _swap(context: Context, files: Sequence[str], budget: int) -> None:
    """Replace a model again and again, without room for two."""
    first, second = ({**each, "name": "m"} for each in tables(files))
    memory = {"budget": budget}
    with ExitStack() as stack:
        daemon = Victim({"memory": memory, "admission": ADMISSION, "backend": [first]})
        stack.enter_context(running(daemon))
        before, watched = settled(daemon), Memory(context, daemon, "swap")
        clients = Clients(context, daemon, "swap")
        watched.report("before", watched.now())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.sample)
            async with trio.open_nursery() as asking:
                asking.start_soon(clients.run, [text("hello", max_tokens=30)])
                for number in range(context.pick(short=2, full=8)):
                    table = (second, first)[number % 2]
                    await _reload(
                        context, daemon, {"memory": memory, "backend": [table]}
                    )
                clients.is_over = True
            nursery.cancel_scope.cancel()
        watched.report("most")
        watched.report("after", watched.now())
        context.measure("swap_answer", clients.seconds)
        check_left(context, daemon, before)


async def _reload(context: Context, daemon: Victim, config: Frame) -> None:
    """Replace the model; the old worker ends, and the new one alone is left."""
    [old] = daemon.workers()
    listen = {"directory": str(daemon.directory)}
    whole = {"listen": listen, "admission": ADMISSION, **config}
    daemon.config_file.write_text(to_toml(whole))
    with daemon.admin(timeout_s=LOAD_S) as admin:
        reply = await trio.to_thread.run_sync(admin.order, "reload")
    context.require(reply["ok"], f"the reload failed: {reply}")
    gone = await eventually(lambda: old not in daemon.workers())
    context.require(gone, "the old worker is there after the reload")
    context.require(len(daemon.workers()) == 1, f"workers: {daemon.workers()}")
    context.counts["swaps"] = context.counts.get("swaps", 0) + 1


async def _take_turns(context: Context, files: Sequence[str], budget: int) -> None:
    """Have clients ask two models in turn that do not fit together."""
    rules = context.pick(short=SHORT_TURNS, full=FULL_TURNS)
    waits = {"min_residency_s": rules.residency_s, "longest_wait_s": rules.wait_s}
    backends = tables(files, load="demand")
    config = {"memory": {"budget": budget, **waits}, "admission": ADMISSION}
    with running(Victim({**config, "backend": backends})) as daemon:
        load_s = [await _timed(daemon, "load", each["name"]) for each in backends]
        unload_s = await _timed(daemon, "unload", backends[-1]["name"])
        watched = Memory(context, daemon, "turns")
        watched.report("before", watched.now())
        clients = Clients(context, daemon, "turns")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.sample)
            await _ask_for_turns(clients, daemon, rules.n_turns)
            nursery.cancel_scope.cancel()
        watched.report("most")
        watched.report("after", watched.now())
        context.measure("turns_answer", clients.seconds)
        turn_s = rules.residency_s + unload_s + 2 * max(load_s)
        bound_s = rules.wait_s + len(backends) * turn_s
        context.figures["turns_bound_without_answers_s"] = round(bound_s, 1)


async def _ask_for_turns(clients: Clients, daemon: Victim, n_turns: int) -> None:
    """Have clients ask all models until so many have had to go for another."""
    questions = [text("hello", max_tokens=30, model=name) for name in ("m0", "m1")]
    n_before = _unloads(daemon)
    async with trio.open_nursery() as asking:
        asking.start_soon(clients.run, questions)
        with trio.move_on_after(TURNS_S):
            while _unloads(daemon) - n_before < n_turns:
                await trio.sleep(SAMPLE_S)
        clients.is_over = True
    clients.count("turns", _unloads(daemon) - n_before, at_least=n_turns)


def _unloads(daemon: Victim) -> int:
    return len(daemon.logged(msg="worker.unloaded"))


async def _timed(daemon: Victim, command: str, backend: str) -> float:
    began_at = trio.current_time()
    with daemon.admin(timeout_s=LOAD_S) as admin:
        order = partial(admin.order, command, backend=backend)
        reply = await trio.to_thread.run_sync(order)
    assert reply["ok"], reply  # noqa: S101  # as the harness does
    return trio.current_time() - began_at
