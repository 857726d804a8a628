"""The same conversations through each kind of remote engine, before real servers.

One model answers all of them: in a daemon, through its bridge in each of its APIs, in
llama.cpp's own server, and in that of its Python binding.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from bench.lab import Lab, ModelFile
from bench.models import model_file
from bench.peers.llama_server import running_server
from bench.peers.server_py import running_server_py
from inferd.models.embedded import CHAT
from tests.daemon.bridge import bridge_to
from tests.daemon.configuration import Table, llamacpp
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess
from torture.outcome import Context

KEY: Final = "remote-servers"
NAME: Final = "Each kind of remote engine, before real servers"

N_CTX: Final = 2048
N_THREADS: Final = 2
OF_THE_BRIDGE: Final = ("openai", "anthropic", "ollama", "inferd", "sockets")
OTHERS: Final = ("llama-server", "server.py")
"""Servers of others, which are asked as kind ``openai``."""
LACKING: Final[Mapping[tuple[str, str], str]] = {
    ("ollama", "call"): "its API forces no call",
    ("llama-server", "call"): "it forces no call where the template has no tools",
    ("server.py", "call"): "it takes tools, and its model calls none",
    ("server.py", "overflow"): "its refusal is a 500, as of any failure",
}
"""What a server is known not to do, and why; the outcome must differ then."""
ADD: Final = {
    "name": "add",
    "description": "Adds two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}
NUMBER: Final = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}
GREEDY: Final = {"temperature": 0.0}


def _says(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


CONVERSATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {
        "messages": [
            _says("system", "Be brief."),
            _says("user", "Name a colour."),
            _says("assistant", "Red."),
            _says("user", "And another one?"),
        ],
        "max_tokens": 24,
    },
    "length": {"messages": [_says("user", "Tell a long story.")], "max_tokens": 5},
    "stop": {
        "messages": [_says("user", "Tell a long story.")],
        "max_tokens": 60,
        "stop": [" "],
    },
    "call": {
        "messages": [_says("user", "What is 1 + 2?")],
        "tools": [ADD],
        "tool_choice": "required",
        "max_tokens": 60,
    },
    "structure": {
        "messages": [_says("user", "A number as JSON.")],
        "response_format": {"type": "json_schema", "schema": NUMBER},
        "max_tokens": 40,
    },
    "overflow": {"messages": [_says("user", "word " * 2 * N_CTX)], "max_tokens": 5},
}


@dataclass(frozen=True)
class Outcome:
    """What a client is told, but for what differs from run to run."""

    form: tuple[str, ...]
    """Kinds of the blocks, and how the answer ended."""
    said: tuple[str, ...] = ()
    """Texts and calls."""
    is_whole: bool = True
    """Whether what was to have a form has it."""


def run(context: Context) -> None:
    """Ask every kind each conversation, and compare with the model's own answers."""
    model = model_file(f"smollm2={CHAT.reference}")
    others = context.pick(short=(), full=OTHERS)
    with ExitStack() as stack:
        near, front = stack.enter_context(_daemons(model, others))
        n_same = 0
        for name, request in CONVERSATIONS.items():
            expected = _ask(near, "chat", request)
            for backend in (*OF_THE_BRIDGE, *others):
                found = _ask(front, backend, request)
                _compare(context, backend, name, expected, found)
                n_same += found == expected
    n_all = len(CONVERSATIONS) * len((*OF_THE_BRIDGE, *others))
    context.counts |= {"conversations": n_all, "same_to_the_letter": n_same}


def _compare(
    context: Context, backend: str, name: str, expected: Outcome, found: Outcome
) -> None:
    """Hold an outcome to its form, and to its words where the same engine speaks."""
    place = f"{backend}, {name}"
    if (reason := LACKING.get((backend, name))) is not None:
        context.require(found.form != expected.form, f"{place}: does it by now")
        context.notes.append(f"{place}: {reason}: {'; '.join(found.form)}")
        return
    context.require(
        found.form == expected.form, f"{place}: {found.form}, not {expected.form}"
    )
    context.require(found.is_whole, f"{place}: {found.said} has not the form")
    if backend in OF_THE_BRIDGE:
        context.require(
            found.said == expected.said, f"{place}: {found.said}, not {expected.said}"
        )


def _ask(daemon: DaemonProcess, model: str, request: Mapping[str, Any]) -> Outcome:
    with daemon.connect("infer.v2.sock") as client:
        frames = client.ask({"id": "r", "model": model, **GREEDY, **request})
    *blocks, last = (each for each in frames if each["type"] != "status")
    if last["type"] == "error":
        return Outcome(
            ("error", last["code"], ("prompt_tokens" in last and "counted") or "")
        )
    kinds: list[str] = []
    said: list[str] = []
    for block in (each["block"] for each in blocks):
        is_call = block["type"] == "tool_use"
        text = (
            f"{block['name']} {msgspec.json.encode(block['input'], order='sorted')!r}"
            if is_call
            else block["delta"]
        )
        if kinds and not is_call and kinds[-1] == block["type"]:
            said[-1] += text
        else:
            kinds.append(block["type"])
            said.append(text)
    end = (last["stop_reason"], str(last.get("stop_sequence")))
    is_whole = "response_format" not in request or _is_number("".join(said))
    return Outcome((*kinds, *end), (*said,), is_whole)


def _is_number(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text)["n"], int)
    except (msgspec.DecodeError, KeyError, TypeError):
        return False


@contextmanager
def _daemons(
    model: ModelFile, others: Sequence[str]
) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    """Run a daemon with the model, its bridge, other servers, and a daemon that asks them."""
    with daemons() as make, ExitStack() as stack:
        local = llamacpp(model.path, n_ctx=N_CTX, n_threads=N_THREADS)
        near = make({"backend": [local]}).start()
        bridge = stack.enter_context(bridge_to(near))
        backends = [
            _backend(each, "chat", f"http://127.0.0.1:{bridge.port}")
            for each in OF_THE_BRIDGE
            if each != "sockets"
        ]
        far = {"kind": "inferd", "base_url": f"sockets:{near.directory}"}
        backends.append({**_backend("sockets", "chat", ""), **far})
        for each in others:
            address = stack.enter_context(_server(each, model))
            table = _backend(each, "m", f"http://{address}")
            backends.append({**table, "kind": "openai"})
        yield near, make({"backend": backends}).start()


@contextmanager
def _server(name: str, model: ModelFile) -> Iterator[str]:
    """Run another project's server; yield its address.

    Raises:
        ValueError: it is not known.
    """
    with ExitStack() as stack:
        if name == "llama-server":
            options = ("--ctx-size", str(N_CTX), "--parallel", "1", "--jinja")
            running = running_server(model.path, threads=N_THREADS, extra_args=options)
        elif name == "server.py":
            lab = Lab(model, frozenset(), N_THREADS)
            running = running_server_py(lab, n_slots=1, n_ctx=N_CTX)
        else:
            raise ValueError(name)
        yield stack.enter_context(running).address


def _backend(name: str, model: str, url: str) -> Table:
    can: Table = {"tools": True, "structure": True, "n_ctx": N_CTX}
    if name == "anthropic":
        can["samplers"] = ["temperature"]
    return {"name": name, "kind": name, "base_url": url, "model": model, **can}
