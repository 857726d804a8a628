"""Ask a daemon that runs the embedded model, and leave the model no choice.

Biases are as large as can be: a model's scores do not differ by as much.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from tests.daemon.harness import DaemonProcess, Frame, blocks

V2: Final = "infer.v2.sock"
TOKENS: Final = {
    "<|im_end|>": 2,
    "!": 17,
    "<": 44,
    ">": 46,
    "[": 75,
    "]": 77,
    "{": 107,
    "th": 373,
    "ink": 900,
    "</": 9617,
    "analysis": 14975,
    "think": 17400,
    "}]": 31845,
    "calls": 34723,
}
"""Some tokens of the embedded model."""


def favoured(*texts: str, bias: float = 100.0) -> dict[str, float]:
    """Have tokens chosen wherever they may be."""
    return {str(TOKENS[text]): bias for text in texts}


ENDS_SOON: Final = favoured("<|im_end|>", "]", "}]", "calls") | favoured("<", bias=50)
"""End the answer as soon as it may end, and calls where another one could begin."""


def ask(daemon: DaemonProcess, **fields: Any) -> tuple[list[Any], Frame]:
    """Give what is told, runs of text and of thought as one, and the last frame."""
    with daemon.connect(V2) as connection:
        *frames, done = connection.ask(asked(**fields))
    assert done["type"] == "done", done
    return told(frames), done


def asked(**fields: Any) -> Frame:
    """Make a request that is answered the same each time."""
    return blocks("Hi.", temperature=0, max_tokens=200) | fields


def told(frames: Iterable[Frame]) -> list[Any]:
    """Join runs of text and of thought; give calls as name and arguments."""
    said = [frame["block"] for frame in frames if frame["type"] == "frame"]
    joined: list[Any] = []
    for kind, run in groupby(said, lambda block: block["type"]):
        if kind == "tool_use":
            joined += [(block["name"], block["input"]) for block in run]
        else:
            joined.append({kind: "".join(block["delta"] for block in run)})
    return joined


def tool(name: str, schema: object) -> Frame:
    """Make a tool of a request."""
    return {"name": name, "description": "", "input_schema": schema}
