"""Pulls and removals of models: what is asked of the helper, and Ollama's form of it."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from inferd.bridge.ollama.sampling import one_name
from inferd.bridge.ollama.tables import DELETE, PULL
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.managed import ManagedQuestion, helper_request
from inferd.limits.bridge import MAX_STATED_CHARS
from inferd.wire.management import HelperDone, HelperFrame, PullProgress

_LATEST: Final = ":latest"
_HUB: Final = re.compile(r"(?:https?://)?(?:hf\.co|huggingface\.co)/(?P<rest>.+)")
_OWN: Final = ("hf:", "embedded:")
_SHOWN_DIGITS: Final = 12
"""Of a digest, in a status that people read."""


class PulledModel(Struct, frozen=True, kw_only=True):
    """The honoured fields of a request to pull a model."""

    model: str = ""
    name: str = ""
    stream: bool = True


class DeletedModel(Struct, frozen=True, kw_only=True):
    """The honoured fields of a request to remove a model."""

    model: str = ""
    name: str = ""


class PullStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the answer to a pull."""

    status: str
    digest: str = ""
    total: int | None = None
    completed: int | None = None


class PullAnswer:
    """The lines of a pull, or the last of them."""

    def add(self, frame: HelperFrame) -> Iterator[bytes]:
        """Take a frame; yield its line."""
        match frame:
            case PullProgress(phase="plan"):
                yield _line(PullStatus(status="pulling manifest"))
            case PullProgress():
                status = PullStatus(
                    status=f"pulling {frame.sha256[:_SHOWN_DIGITS]}",
                    digest=f"sha256:{frame.sha256}",
                    total=frame.total,
                    completed=frame.done,
                )
                yield _line(status)
            case HelperDone():
                yield _line(_DONE)
            case _:
                pass

    def end(self) -> Iterator[bytes]:
        """Yield nothing: the last frame has a line."""
        yield from ()

    def whole(self) -> bytes:
        """Return the last line."""
        return msgspec.json.encode(_DONE)


class DeleteAnswer:
    """The answer to a removal, which is empty."""

    def add(self, _: HelperFrame) -> Iterator[bytes]:
        """Take a frame."""
        yield from ()

    def end(self) -> Iterator[bytes]:
        """Yield nothing: it is not streamed."""
        yield from ()

    def whole(self) -> bytes:
        """Return nothing."""
        return b""


_DONE: Final = PullStatus(status="success")


def ask_pull_model(
    body: bytes,
    named: Mapping[str, str],  # noqa: ARG001
    principal: str,
) -> ManagedQuestion:
    """Translate a request to pull a model.

    A model of a hub has the name afterwards under which it was asked for.

    Raises:
        BridgeError: it has something that is not served, or names another registry.
    """
    wanted = read_body(body, PULL, PulledModel)
    name = _named(wanted.model, wanted.name)
    hub = _HUB.fullmatch(name)
    if hub is None and not name.startswith(_OWN):
        raise BridgeError(
            Reason.MODEL_NOT_FOUND,
            f"model '{name[:MAX_STATED_CHARS]}' is of a registry that is not asked here; "
            "hf.co/OWNER/REPO:QUANT, hf:OWNER/REPO and embedded:NAME are pulled",
            param="model",
        )
    source = name if hub is None else f"hf:{hub['rest']}"
    own = "" if hub is None else name.partition("://")[2] or name
    names = {"source": "model"}
    request = helper_request("pull", principal, model=own, source=source, names=names)
    return ManagedQuestion(request, PullAnswer(), wanted.stream)


def ask_delete_model(
    body: bytes,
    named: Mapping[str, str],  # noqa: ARG001
    principal: str,
) -> ManagedQuestion:
    """Translate a request to remove a model.

    Raises:
        BridgeError: it names none.
    """
    wanted = read_body(body, DELETE, DeletedModel)
    name = _named(wanted.model, wanted.name)
    return ManagedQuestion(
        helper_request("remove", principal, model=name), DeleteAnswer()
    )


def _named(model: str, name: str) -> str:
    """Return the name that a request has, without the tag that counts as none."""
    found = one_name(model, name).removesuffix(_LATEST)
    if not found:
        raise invalid("model", "is missing")
    return found


def _line(status: PullStatus) -> bytes:
    return msgspec.json.encode(status) + b"\n"
