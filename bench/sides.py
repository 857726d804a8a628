"""The servers of one measure, each with its clients, up at the same time."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.daemon import RunningDaemon, running_daemon
from bench.lab import Lab
from bench.load.clients import Clients, clients_of
from bench.load.scene import Answer, Ask
from bench.load.speech import ServerError
from bench.peers.llama_server import RunningServer, running_server, server_command
from bench.peers.server_py import UnavailableError, running_server_py
from bench.prompts import Lengths, measured_lengths, words
from bench.quiet import wait_until_idle
from bench.templates import TEMPLATES
from inferd import surfaces

SAMPLE_WORDS: Final = 40
SAMPLE: Final = Ask(turns=[("user", words(SAMPLE_WORDS, 0))], max_tokens=1)
SMALL: Final = "peer_small_batch"
SMALL_BATCH: Final = 32
"""Tokens: with these llama-server stalls about as little as the daemon on two cores, with
64 twice as long; it takes 2,048 by default."""
LIKE: Final = 0.05
"""Share of a prompt's tokens by which two sides may count differently."""


@contextmanager
def chat_sides(
    lab: Lab,
    *,
    n_slots: int,
    n_ctx: int,
    with_server_py: bool = False,
    with_small_batch: bool = False,
) -> Iterator[Mapping[str, Clients]]:
    """Run the sides that are wanted while inside; give the clients of each.

    Args:
        lab: model, threads, and which sides.
        n_slots: requests that each side runs at once.
        n_ctx: tokens of one request, prompt and answer.
        with_server_py: whether the binding's own server is one of them.
        with_small_batch: whether llama-server is there again, with ``SMALL_BATCH``.
    """
    with ExitStack() as stack:
        clients: dict[str, Clients] = {}
        for name, checkout in lab.daemons.items():
            daemon = stack.enter_context(
                our_daemon(lab, n_slots=n_slots, n_ctx=n_ctx, checkout=checkout)
            )
            address = str(daemon.directory)
            clients[name] = stack.enter_context(clients_of("inferd", address))
        peers = {"peer": None, **({SMALL: SMALL_BATCH} if with_small_batch else {})}
        for name, n_batch in peers.items() if lab.has("peer") else ():
            peer = stack.enter_context(
                our_peer(lab, n_slots=n_slots, n_ctx=n_ctx, n_batch=n_batch)
            )
            clients[name] = stack.enter_context(clients_of("http", peer.address))
        if with_server_py and lab.has("server_py"):
            try:
                server = stack.enter_context(
                    running_server_py(lab, n_slots=n_slots, n_ctx=n_ctx)
                )
                found = stack.enter_context(clients_of("http", server.address))
                clients["server_py"] = found
            except (UnavailableError, SystemExit) as error:
                lab.absent["server_py"] = str(error)
        check_alike({name: side.ask(SAMPLE) for name, side in clients.items()})
        if lab.is_patient:
            wait_until_idle()
        yield clients


def check_alike(answers: Mapping[str, Answer]) -> None:
    """See that all sides read the same prompt; who does not count is believed.

    Raises:
        ServerError: they do not, so their speeds say nothing.
    """
    counts = {name: each.n_prompt for name, each in answers.items() if each.n_prompt}
    if counts and max(counts.values()) > min(counts.values()) * (1 + LIKE):
        raise ServerError(f"the sides read different prompts: {counts} tokens")


@contextmanager
def our_daemon(
    lab: Lab, *, n_slots: int, n_ctx: int, checkout: Path | None = None
) -> Iterator[RunningDaemon]:
    """Run the daemon on the lab's model while inside."""
    tables = tables_for(lab, n_slots=n_slots, n_ctx=n_ctx)
    lab.note_text("inferd serve --config:\n" + tables)
    with running_daemon(tables, surfaces.V2.socket, checkout=checkout) as daemon:
        yield daemon


def tables_for(lab: Lab, *, n_slots: int, n_ctx: int) -> str:
    """Write the daemon's configuration, all but where its sockets are."""
    family = lab.model.family
    return (
        f"[admission]\nmax_active = {n_slots}\nmax_queued = {n_slots}\n"
        '[[backend]]\nname = "chat"\nkind = "llamacpp"\n'
        f"model = {json.dumps(str(lab.model.path))}\n"
        f"n_ctx = {n_ctx}\nn_threads = {lab.n_threads}\n"
        f"n_gpu_layers = {lab.n_gpu_layers}\n"
        + (f'chat_template = "{family}"\n' if family else "")
    )


@contextmanager
def our_peer(
    lab: Lab, *, n_slots: int, n_ctx: int, n_batch: int | None = None
) -> Iterator[RunningServer]:
    """Run llama-server on the lab's model while inside."""
    options = peer_options(lab, n_slots=n_slots, n_ctx=n_ctx, n_batch=n_batch)
    lab.note(server_command(lab.model.path, threads=lab.n_threads, extra_args=options))
    with running_server(
        lab.model.path, threads=lab.n_threads, extra_args=options
    ) as server:
        yield server


def peer_options(
    lab: Lab, *, n_slots: int, n_ctx: int, n_batch: int | None = None
) -> list[str]:
    """Give llama-server's options for the same work; its own batches by default."""
    template = TEMPLATES.get(lab.model.family or "")
    batch = str(n_batch)
    return [
        *("--parallel", str(n_slots), "--ctx-size", str(n_slots * n_ctx)),
        *("--n-gpu-layers", str(lab.n_gpu_layers)),
        *(("--chat-template", template) if template else ()),
        *(("--batch-size", batch, "--ubatch-size", batch) if n_batch else ()),
    ]


def lengths(sides: Mapping[str, Clients]) -> Lengths:
    """Have the first side count tokens; it is warm afterwards."""
    if not sides:
        return Lengths()
    clients = next(iter(sides.values()))
    return measured_lengths(
        lambda text: clients.ask(Ask(turns=[("user", text)], max_tokens=1)).n_prompt
    )
