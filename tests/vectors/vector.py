"""Read the vectors of the protocol as their README describes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

VECTORS: Final = Path(__file__).parents[2] / "protocol" / "vectors"
FOLDERS: Final = ("accepted", "rejected", "hostile", "admin")

Frame = dict[str, Any]
Bytes = str | Frame | list[Any]

SAMPLES: Final[dict[str, str | int]] = {"string": "x", "number": 1}
"""A value of each kind that ``$any`` may stand for."""


class Step(Struct, forbid_unknown_fields=True):
    """One thing to do; one field beside ``on`` is set."""

    on: str | None = None
    send: str | Frame | None = None
    send_raw: Bytes | None = None
    end_of_sending: Literal[True] | None = None
    expect: Frame | None = None
    expect_at_least: Frame | None = None
    expect_close: Literal[True] | None = None

    def __post_init__(self) -> None:
        """Refuse a step that says nothing, or more than one thing."""
        said = [
            name for name in self.__struct_fields__ if getattr(self, name) is not None
        ]
        if len(set(said) - {"on"}) != 1:
            raise ValueError(f"a step has one key beside on, not {said}")

    @property
    def sent(self) -> bytes:
        """The bytes that it writes; none for a step that does not."""
        if self.send_raw is not None:
            return to_bytes(self.send_raw)
        match self.send:
            case None:
                return b""
            case str(text):
                return text.encode() + b"\n"
            case frame:
                return msgspec.json.encode(frame) + b"\n"

    @property
    def expected(self) -> Frame | None:
        """The frame that it reads, whole or in part."""
        return self.expect or self.expect_at_least


class Vector(Struct, forbid_unknown_fields=True):
    """One behaviour."""

    description: str
    surface: Literal["v1", "admin"]
    exchange: list[Step]
    backend: Frame = msgspec.field(default_factory=lambda: {"tokens": ["Hel", "lo"]})
    admission: Frame = msgspec.field(default_factory=dict)

    @property
    def daemon(self) -> Frame:
        """The configuration of the daemon that it is for."""
        backend = {"name": "mock", "kind": "mock", **self.backend}
        tables = {"backend": [backend]}
        return tables | ({"admission": self.admission} if self.admission else {})

    def connections(self) -> dict[str, list[Step]]:
        """Sort the steps by the connection that they are about."""
        steps: dict[str, list[Step]] = {}
        for step in self.exchange:
            steps.setdefault(step.on or self.surface, []).append(step)
        return steps


def read_vectors(*folders: str) -> dict[str, Vector]:
    """Read the vectors of some folders, by folder and name."""
    return {
        f"{folder}/{path.stem}": msgspec.json.decode(path.read_bytes(), type=Vector)
        for folder in folders
        for path in sorted((VECTORS / folder).glob("*.json"))
    }


def to_bytes(value: Bytes) -> bytes:
    """Build what a step sends."""
    match value:
        case str(text):
            return text.encode()
        case {"hex": str(digits), **rest} if not rest:
            return bytes.fromhex(digits)
        case {"repeat": part, "times": int(times), **rest} if not rest:
            return to_bytes(part) * times
        case list(parts):
            return b"".join(map(to_bytes, parts))
        case _:
            raise ValueError(f"not bytes: {value!r}")


def matches(expected: object, actual: object) -> bool:
    """Compare a value with one that a vector expects."""
    match expected:
        case {"$any": str(kind), **rest} if not rest:
            return kind_of(actual) == kind_of(SAMPLES[kind])
        case {"$starts": str(start), **rest} if not rest:
            return isinstance(actual, str) and actual.startswith(start)
        case dict():
            return (
                isinstance(actual, dict)
                and expected.keys() == actual.keys()
                and all(matches(expected[key], actual[key]) for key in expected)
            )
        case list():
            return (
                isinstance(actual, list)
                and len(expected) == len(actual)
                and all(map(matches, expected, actual))
            )
        case _:
            return kind_of(expected) == kind_of(actual) and expected == actual


def kind_of(value: object) -> str:
    """Name the JSON type of a value, where integers are numbers."""
    match value:
        case bool() | None:
            return str(value)
        case int() | float():
            return "number"
        case str():
            return "string"
        case _:
            return type(value).__name__


def sample(expected: object) -> Any:
    """Make a value that a vector would take."""
    match expected:
        case {"$any": str(kind), **rest} if not rest:
            return SAMPLES[kind]
        case {"$starts": str(start), **rest} if not rest:
            return start
        case dict():
            return {key: sample(value) for key, value in expected.items()}
        case _:
            return expected


def only_members(expected: Frame, actual: Frame) -> Frame:
    """Keep of a frame the members that are expected."""
    return {key: value for key, value in actual.items() if key in expected}


def expectations(steps: list[Step]) -> Iterator[Frame]:
    """Give the frames that a connection expects."""
    for step in steps:
        if step.expected is not None:
            yield step.expected
