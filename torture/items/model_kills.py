"""R2: workers that run a model killed under load: greedy answers stay the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from tests.daemon.harness import llamacpp
from tests.model.tiny import write_tiny_bert, write_tiny_model
from torture.clients import text, typed, vectors
from torture.items.kills import MORTAL, settle
from torture.litter import check_left, settled
from torture.load import Killer, Load, undisturbed
from torture.outcome import Context
from torture.victim import Victim, running

KEY: Final = "R2"
NAME: Final = "Workers with a model killed under load, another model beside them"

N_CLIENTS: Final = 8
MAX_ACTIVE: Final = 2
GREEDY: Final = {"temperature": 0, "seed": 0}
PROMPTS: Final = ("hello", "hellp", "a longer text that takes a while", "0123456789")
QUESTIONS: Final = (
    *(text(prompt, max_tokens=60, **GREEDY) for prompt in PROMPTS),
    *(typed(prompt, max_tokens=90, **GREEDY) for prompt in PROMPTS),
    vectors("one", "two three"),
)


@contextmanager
def two_models() -> Iterator[Victim]:
    """Give a daemon, not started, with a model that writes and one that embeds."""
    with TemporaryDirectory(prefix="models-") as directory:
        chat = write_tiny_model(Path(directory) / "chat.gguf")
        embed = write_tiny_bert(Path(directory) / "embed.gguf")
        yield Victim(
            {
                "backend": [
                    llamacpp(chat, prompt_cache_mb=0),
                    llamacpp(embed, name="embed"),
                ],
                "admission": {"max_active": MAX_ACTIVE, "max_queued": 4 * N_CLIENTS},
                "limits": {"breaker_deaths": 1000},
            }
        )


def run(context: Context) -> None:
    """Kill the one that writes, and compare."""
    with two_models() as prepared, running(prepared) as daemon:
        before = settled(daemon)
        embed = frozenset(pid for pid in daemon.workers() if maps(pid, "embed.gguf"))
        context.require(len(embed) == 1, "which worker embeds cannot be told")
        trio.run(_kill, context, daemon, embed)
        context.require(embed <= set(daemon.workers()), "the other worker was touched")
        check_left(context, daemon, before)


def maps(pid: int, name: str) -> bool:
    """Tell whether a process has a file of this name in its memory."""
    return f"/{name}\n" in Path(f"/proc/{pid}/maps").read_text()


async def _kill(context: Context, daemon: Victim, spared: frozenset[int]) -> None:
    expected = await undisturbed(daemon.directory, QUESTIONS)
    load = Load(daemon.directory, expected, context.rng, n_clients=N_CLIENTS)
    killer = Killer(daemon, load, context.rng, signals=MORTAL, spared=spared)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await killer.kill_times(context.pick(short=3, full=200))
        load.stop()
    settle(context, load, killer, max_active=MAX_ACTIVE)
