"""What is short to send and long to work on: grammars, schemas, tools, conversations."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from attack.asking import Question, plain, typed
from attack.grammars import gbnf, lark, patterns, slow_tokens
from attack.load import CHAT, HOSTILE_S, Bounds, Load
from attack.place import Place
from attack.schemas import schemas, tools
from inferd import surfaces
from tests.daemon.harness import llamacpp

KIND: Final = "structures"
ALLOWED: Final = frozenset({"invalid_request", "frame_too_large"})
BOUNDS: Final = Bounds(max_s=10, hostile_s=HOSTILE_S, hostile_codes=ALLOWED)
QUESTION: Final = plain("Name a city.", max_tokens=4, temperature=0)
DIALECTS: Final = (
    *("chatml", "deepseek", "gemma3", "gemma4", "generic", "granite"),
    *("harmony", "llama3", "mistral", "qwen", "qwen3-coder"),
)
N_MESSAGES: Final = 60_000

Samples = Callable[[], Iterable[Question]]


async def in_a_loop(place: Place, samples: Samples) -> None:
    """Ask one after another, over and over."""
    place.begun()
    questions = list(samples())
    step = max(1, round(1 / place.scale))
    while True:
        for question in questions[::step]:
            await place.ask(question)
        place.cycled()


def one_sample() -> Iterator[Question]:
    """Give the first grammar that brought a worker down."""
    yield next(each for each in gbnf() if "escapes without end" in each.name)


def conversations() -> Iterator[Question]:
    """Give conversations that are long in one way each."""
    say = "a", "b"
    yield Question.of(
        surfaces.INFER.socket,
        "many messages",
        messages=[
            {"role": ("user", "assistant")[k % 2], "content": say[k % 2]}
            for k in range(N_MESSAGES)
        ],
        max_tokens=1,
    )
    yield Question.of(
        surfaces.INFER.socket,
        "many system messages",
        messages=[{"role": "system", "content": ""}] * N_MESSAGES
        + [{"role": "user", "content": "x"}],
        max_tokens=1,
    )
    yield plain("x " * 130_000, max_tokens=0).named("a long text")
    yield plain("x" * 30_000_000, max_tokens=0).named("a text of 30 MB")
    yield plain(" " * 4_000_000, max_tokens=0).named("4 MB of blanks")
    yield plain("<|im_end|>" * 400_000, max_tokens=0).named("markers")
    yield plain("\N{PILE OF POO}" * 500_000, max_tokens=0).named("emoji")
    yield plain("{{ x }}{% for a in b %}" * 10_000, max_tokens=0).named("a template")
    yield Question.of(
        surfaces.V2.socket,
        "many blocks",
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "x"}] * 65_000}
        ],
        max_tokens=1,
    )
    yield Question.of(
        surfaces.V2.socket,
        "calls and results",
        messages=[message for k in range(15_000) for message in _call(k)],
        max_tokens=1,
    )
    yield Question.of(
        surfaces.V2.socket,
        "results of one call",
        messages=[*_call(0), *([_call(0)[1]] * 30_000)],
        max_tokens=1,
    )
    yield Question.of(
        surfaces.V2.socket,
        "a call with large input",
        messages=[
            {
                "role": "assistant",
                "content": [_use(0, {f"k{k}": [k] for k in range(100_000)})],
            },
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
        ],
        max_tokens=1,
    )
    yield typed("x", stop=["a" * 255 + chr(97 + k) for k in range(16)], max_tokens=1)
    bias = {str(token): -100.0 for token in range(1024)}
    yield typed("x", logit_bias=bias, max_tokens=1).named("logit_bias")


def _use(number: int, given: Any) -> dict[str, Any]:
    call = {"tool_call_id": f"c{number}", "name": "f", "input": given}
    return {"type": "tool_use", **call}


def _call(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    result = {"type": "tool_result", "tool_call_id": f"c{number}", "content": []}
    return (
        {"role": "assistant", "content": [_use(number, {})]},
        {"role": "user", "content": [result]},
    )


def load(name: str, about: str, samples: Samples, **fields: Any) -> Load:
    """Make an attack that asks samples in a loop, from one connection at a time."""
    return Load(
        name=name,
        kind=KIND,
        about=about,
        run=partial(in_a_loop, samples=samples),
        is_whole=True,
        **{"bounds": BOUNDS, "config": CHAT, "question": QUESTION, **fields},
    )


def attacks() -> Iterator[Load]:
    """Give all of them."""
    yield load("gbnf-escapes", "the grammar of 32,000 open literals", one_sample)
    yield load("gbnf", "GBNF grammars", gbnf)
    yield load("lark", "Lark grammars", lark)
    yield load("patterns", "regular expressions", patterns)
    yield load(
        "slow-tokens",
        "long answers that are held to patterns and Lark grammars",
        slow_tokens,
        bounds=Bounds(max_s=10, hostile_codes=ALLOWED),
    )
    yield load("schemas", "JSON Schemas that answers are held to", schemas)
    yield load("conversations", "long conversations", conversations)
    for dialect in DIALECTS:
        yield load(
            f"tools-{dialect}",
            f"tools with schemas, in the family {dialect}",
            tools,
            config={"backend": [llamacpp("embedded:chat", chat_template=dialect)]},
            is_any=False,
        )
