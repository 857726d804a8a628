"""The text of a first configuration, for a machine and the models that it has."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from inferd.config.kinds.llamacpp import AUTO
from inferd.config.settings import AdmissionSettings, LogSettings, MemorySettings
from inferd.config.toml_text import toml_value
from inferd.limits.engine import MAX_RUNGS
from inferd.models.facts.model import Use

_NAMES: Final[dict[Use, str]] = {
    "generate": "chat",
    "embed": "embed",
    "rerank": "rerank",
    "transcribe": "speech",
}
"""Names of the backends by what their models are for."""


class KnownModel(NamedTuple):
    """A model that a backend could serve."""

    reference: str
    """For ``model`` in the configuration."""
    kind: str
    use: Use
    n_bytes: int
    fault: str = ""
    """Why it cannot be served as it is; one line, empty if it can."""


class MachineFacts(NamedTuple):
    """What a first configuration follows from."""

    n_cores: int
    max_active: int
    """Requests that run at once without a setting."""
    available: int
    """Bytes of memory that are free."""
    socket_directory: str
    store: str
    """Directory of the model store."""
    models: Sequence[KnownModel]
    """Of the stores in which models are looked up."""
    store_faults: Sequence[str] = ()
    """Why some of these stores are left out."""


def first_config(machine: MachineFacts) -> str:
    """Write a configuration with comments, in TOML.

    Of models for the same purpose all that generate text are a ladder, the largest first;
    of the others the largest is taken.
    """
    lines = [_settings(machine)]
    for use, name in _NAMES.items():
        models = sorted(
            (model for model in machine.models if model.use == use),
            key=lambda model: (-model.n_bytes, model.reference),
        )
        lines += _backend(name, models)
    told = [
        f"# A model store is left out: {_one_line(each)}"
        for each in machine.store_faults
    ]
    store = _one_line(machine.store)
    lines += [
        "",
        *told,
        f"# More models: inferd model import FILE; they go to {store}.",
    ]
    return "\n".join(lines) + "\n"


def _settings(machine: MachineFacts) -> str:
    """Write what is not about models; all of it as comments."""
    memory, admission = MemorySettings(), AdmissionSettings()
    return f"""\
# The configuration of inferd, as `inferd config init` wrote it for this machine:
# {machine.n_cores} cores, {machine.available // 2**20} MiB of memory free.
# What begins with # is a default or an example. docs/configuration.md has all keys;
# `inferd config check` tells what is wrong, `inferd config show` what is in force.

[listen]
# directory = {toml_value(machine.socket_directory)}  # of the sockets
# group = "users"  # whose members may use the sockets, besides this user

[admission]
# Requests that run at once: one for each core, 4 at most. More share the cores.
# max_active = {machine.max_active}
# Further requests that wait; the next is refused.
# max_queued = {admission.max_queued}

[memory]
# Bytes for all models. By default what is free at the start, less the reserve.
# budget = {max(0, machine.available - memory.reserve)}
# reserve = {memory.reserve}

[models]
# Requests may name any model of the store, besides the backends below; it is loaded when
# one does. A list of names, such as ["me/my-model:q4"], allows those alone.
# serve = true

[log]
# level = {toml_value(LogSettings().level)}  # or debug, warning, error"""


def _backend(name: str, models: Sequence[KnownModel]) -> Iterator[str]:
    """Write the table of a backend, if there is a model for it."""
    usable = [model for model in models if not model.fault]
    faults = [
        f"# {_one_line(model.reference)} is left out: {_one_line(model.fault)}"
        for model in models
        if model.fault
    ]
    if not usable:
        yield from ["", *faults] if faults else []
        return
    yield ""
    yield "[[backend]]"
    yield f"name = {toml_value(name)}"
    yield f"kind = {toml_value(usable[0].kind)}"
    yield from faults
    if name == _NAMES["generate"]:
        yield from _chat(usable)
    else:
        yield f"model = {toml_value(usable[0].reference)}"
        others = ", ".join(_one_line(model.reference) for model in usable[1:])
        yield from [f"# There are also: {others}"] if others else []


def _chat(models: Sequence[KnownModel]) -> Iterator[str]:
    if len(models) == 1:
        yield f"model = {toml_value(models[0].reference)}"
    else:
        rungs = [model.reference for model in models[:MAX_RUNGS]]
        yield "# The first of these that fits into the free memory at the start is served."
        yield f"model = {toml_value(AUTO)}"
        yield f"ladder = {toml_value(rungs)}"
    yield "# Tokens of one request, prompt and answer. By default 8192, or fewer to fit."
    yield "# n_ctx = 8192"


def _one_line(text: str) -> str:
    """Write a text in a comment, which a line break would end."""
    return toml_value(text)[1:-1]
