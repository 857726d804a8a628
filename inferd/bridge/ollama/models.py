"""What is known of models, in Ollama's form.

The daemon tells its clients what its models can do, whether they are loaded, and how long
their contexts are; of files it tells nothing. Fields that clients need and nobody tells have a
value that cannot be mistaken for a real one.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Struct

from inferd.bridge.ollama.answer import timestamp
from inferd.bridge.ollama.sampling import Fields, one_name, other_names
from inferd.bridge.ollama.tables import SHOW
from inferd.bridge.translation.api import OfferedModel
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.limits.bridge import MAX_STATED_CHARS
from inferd.wire.offered_facts import OfferedFacts

API_VERSION: Final = "0.12.11"
"""The release of Ollama whose fields the tables have; clients ask for it to know which they
may send."""
NO_DIGEST: Final = "0" * 64
"""Clients cut a digest to its first characters; the daemon tells none."""
NO_END: Final = "2318-01-01T00:00:00Z"
"""When a model is unloaded, which the daemon does not tell: clients print that it stays."""
_UNKNOWN: Final = OfferedFacts(backend="", aliases=[], state="")


class ShowRequest(Struct, frozen=True, kw_only=True):
    """The honoured fields of a request for a description."""

    model: str = ""
    name: str = ""


def tell_version(_: bytes, __: Sequence[OfferedModel], ___: int) -> bytes:
    """Return the version of the API."""
    return msgspec.json.encode({"version": API_VERSION})


def list_models(_: bytes, models: Sequence[OfferedModel], began_s: int) -> bytes:
    """Return the list of all names of models."""
    found = [_listed(model, began_s) for model in models]
    return msgspec.json.encode({"models": found})


def list_running(_: bytes, models: Sequence[OfferedModel], began_s: int) -> bytes:
    """Return the list of models that are loaded, each by its first name."""
    found: list[Fields] = []
    for model in models:
        facts = model.facts
        if facts is None or facts.state != "ready" or facts.backend != model.name:
            continue
        entry = _listed(model, began_s)
        del entry["modified_at"]
        found.append(
            {
                **entry,
                "expires_at": NO_END,
                "size_vram": 0,
                "context_length": 0 if facts.n_ctx is UNSET else facts.n_ctx,
            }
        )
    return msgspec.json.encode({"models": found})


def show_model(body: bytes, models: Sequence[OfferedModel], began_s: int) -> bytes:
    """Return the description of a model.

    Raises:
        BridgeError: the request has something that is not served, or no listed model has
            that name.
    """
    wanted = read_body(body, SHOW, ShowRequest)
    name = one_name(wanted.model, wanted.name)
    by_name = {model.name: model for model in models}
    for each in (name, *other_names(name)):
        if each in by_name:
            return msgspec.json.encode(_description(by_name[each], began_s))
    raise BridgeError(
        Reason.MODEL_NOT_FOUND,
        f"model '{name[:MAX_STATED_CHARS]}' not found",
        param="model",
    )


def refuse_to_manage(_: bytes, __: Sequence[OfferedModel], ___: int) -> bytes:
    """Refuse to change which models there are.

    Raises:
        BridgeError: always.
    """
    raise BridgeError(
        Reason.FORBIDDEN,
        "models are not changed here; the command inferd model does it on the machine",
    )


def _listed(model: OfferedModel, began_s: int) -> Fields:
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": timestamp(began_s),
        "size": 0,
        "digest": NO_DIGEST,
        "details": _details(model.facts or _UNKNOWN),
    }


def _description(model: OfferedModel, began_s: int) -> Fields:
    facts = model.facts or _UNKNOWN
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "license": "",
        "details": _details(facts),
        "model_info": dict(_info(facts)),
        "capabilities": [*_capabilities(model, facts)],
        "modified_at": timestamp(began_s),
    }


def _details(facts: OfferedFacts) -> Fields:
    family = facts.dialect or ""
    return {
        "parent_model": "",
        "format": "",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": "",
        "quantization_level": "",
    }


def _info(facts: OfferedFacts) -> Iterator[tuple[str, object]]:
    """Yield what is known, under the names that model files have for it."""
    architecture = facts.dialect or "model"
    yield "general.architecture", architecture
    if facts.model:
        yield "general.name", facts.model
    if facts.n_ctx is not UNSET:
        yield f"{architecture}.context_length", facts.n_ctx
    if facts.n_embd is not UNSET:
        yield f"{architecture}.embedding_length", facts.n_embd


def _capabilities(model: OfferedModel, facts: OfferedFacts) -> Iterator[str]:
    if facts.is_unread is UNSET:
        if "generate" in model.uses:
            yield "completion"
        if facts.tools:
            yield "tools"
        if facts.thinking:
            yield "thinking"
        if facts.vision:
            yield "vision"
        if "embed" in model.uses:
            yield "embedding"
