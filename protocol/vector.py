"""Read vectors: one file is one behaviour, as vectors/README.md describes them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.matching import Json, check_pattern, quote

VECTORS: Final = Path(__file__).parent / "vectors"
PROFILES: Final = VECTORS / "profiles"

LEAVES: Final = {
    "v1": "infer.sock",
    "v2": "infer.v2.sock",
    "embed": "infer.embed.sock",
    "rerank": "infer.rerank.sock",
    "admin": "admin.sock",
}
"""The leaf of each surface's socket."""

ACTIONS: Final = (
    "send",
    "send_raw",
    "end_of_sending",
    "expect",
    "expect_terminal",
    "expect_close",
)
SENDING: Final = ("send", "send_raw")
"""Those with which descriptors may go."""

_KEYS: Final = {"description", "surface", "exchange"}


class VectorError(ValueError):
    """A file that is no vector."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do on one connection."""

    on: str
    """The connection: a surface, or a surface, ``#`` and a label."""
    action: str
    """One of ``ACTIONS``."""
    value: Json
    fds: tuple[Json, ...] = ()
    """What is in each of the files that go along, as for ``to_bytes``."""

    @property
    def surface(self) -> str:
        """Where the connection goes."""
        return self.on.partition("#")[0]

    @property
    def data(self) -> bytes:
        """The bytes that it sends; none if it sends nothing."""
        match self.action, self.value:
            case "send", str(text):
                return text.encode() + b"\n"
            case "send", frame:
                return json.dumps(frame, ensure_ascii=False).encode() + b"\n"
            case "send_raw", parts:
                return to_bytes(parts)
            case _:
                return b""


@dataclass(frozen=True, slots=True)
class Vector:
    """One behaviour."""

    description: str
    surface: str
    exchange: tuple[Step, ...]
    profile: str | None
    """What the daemon has to be configured as; ``None`` if it does not matter."""

    @property
    def surfaces(self) -> set[str]:
        """Every surface that it connects to."""
        return {step.surface for step in self.exchange}


def all_vectors() -> list[Path]:
    """List the files of all vectors."""
    return sorted(VECTORS.rglob("*.json"))


def profiles() -> list[str]:
    """List what a daemon may be configured as."""
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def name_of(path: Path) -> str:
    """Give a vector's name: its place below the folder of vectors, or its path."""
    path = path.resolve()
    if path.is_relative_to(VECTORS):
        path = path.relative_to(VECTORS)
    return path.with_suffix("").as_posix()


def read_vector(path: Path) -> Vector:
    """Read one file.

    Raises:
        VectorError: it is no vector; names the file and what is wrong with it.
        OSError: it cannot be read.
    """
    try:
        return _vector(json.loads(path.read_bytes()))
    except ValueError as error:
        raise VectorError(f"{path}: {error}") from error


def to_bytes(value: Json) -> bytes:
    """Build what ``send_raw`` sends.

    Raises:
        VectorError: the value stands for no bytes.
    """
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
            raise VectorError(f"no bytes: {quote(value)}")


def _vector(document: Json) -> Vector:
    if isinstance(document, dict) and document.keys() - {"profile"} == _KEYS:
        profile = _profile(document.get("profile"))
        match document["description"], document["surface"], document["exchange"]:
            case str(description), str(surface), list(steps) if surface in LEAVES:
                exchange = tuple(_step(step, surface) for step in steps)
                return Vector(description, surface, exchange, profile)
            case _:
                pass
    raise VectorError("not a description, a surface, a profile and an exchange")


def _profile(name: Json) -> str | None:
    if name is None or (isinstance(name, str) and name in profiles()):
        return name
    raise VectorError(f"no profile: {quote(name)}")


def _step(document: Json, surface: str) -> Step:
    if not isinstance(document, dict):
        raise VectorError(f"no step: {quote(document)}")
    rest = dict(document)
    on, fds = rest.pop("on", surface), rest.pop("fds", [])
    match on, fds, list(rest.items()):
        case str(on), list(fds), [(action, value)]:
            step = Step(on, action, value, tuple(fds))
        case _:
            raise VectorError(f"no step: {quote(document)}")
    if not _is_sound(step):
        raise VectorError(f"no step: {quote(document)}")
    return step


def _is_sound(step: Step) -> bool:
    if step.fds and not (step.action in SENDING and step.surface != "admin"):
        return False
    for content in step.fds:
        to_bytes(_once(content))
    match step.action, step.value:
        case "send", str() | dict():
            is_sound = True
        case "send_raw", value:
            is_sound = bool(to_bytes(_once(value)))
        case "end_of_sending" | "expect_close", True:
            is_sound = True
        case "expect" | "expect_terminal", dict(pattern):
            check_pattern(pattern)
            is_sound = True
        case _:
            is_sound = False
    return is_sound and step.surface in LEAVES


def _once(value: Json) -> Json:
    """Take every repeat once, so that checking a step builds nothing large."""
    match value:
        case {"repeat": part, "times": int(), **rest} if not rest:
            return _once(part)
        case list(parts):
            return [_once(part) for part in parts]
        case _:
            return value
