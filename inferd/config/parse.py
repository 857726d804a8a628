"""Parse a configuration from TOML, and explain what is wrong with it.

An unknown key, a wrong type and a value out of range are refused with the key, the value
and what is allowed. A configuration with an error is refused as a whole.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, cast

import msgspec
from msgspec import Meta

from inferd.config.explain import Explainer, one_line, shown
from inferd.config.kinds.registry import KINDS, KindRegistry
from inferd.config.settings import (
    BackendSettings,
    Config,
    ConfigError,
    ModelsSettings,
    is_on_demand,
)
from inferd.models.store.names import InvalidNameError, check_name


def parse_config(text: str, kinds: KindRegistry = KINDS) -> Config:
    """Parse a TOML configuration.

    Args:
        text: of the file.
        kinds: the kinds of backends that it may have.

    Raises:
        ConfigError: the message is one line with the key, the value and what is allowed.
    """
    document = parse_toml(text)
    tables = config_type(kinds)
    try:
        config = convert_config(document, tables)
    except msgspec.ValidationError as error:
        explained = Explainer(tables, document).explain(str(error)).text
        raise ConfigError(one_line(explained)) from error
    for fault in contradictions(config, kinds):
        raise ConfigError(fault)
    return config


def parse_toml(text: str) -> dict[str, object]:
    """Parse TOML.

    Raises:
        ConfigError: it is none; the message is one line.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(one_line(f"not TOML: {error}")) from error


def convert_config(document: Mapping[str, object], tables: type[Config]) -> Config:
    """Make a configuration of a document.

    Args:
        document: parsed TOML.
        tables: the type that it must have.

    Raises:
        ValidationError: it has not; the message is msgspec's.
    """
    parsed = msgspec.convert(document, tables)
    fields = {field: getattr(parsed, field) for field in Config.__struct_fields__}
    if parsed.models.serve and "backend" not in document:
        fields["backend"] = ()
    return Config(**fields)


def config_type(kinds: KindRegistry) -> type[Config]:
    """Make the type of configurations whose backends are of these kinds."""
    one_of = reduce(or_, [kind.settings for kind in kinds.kinds])
    tables = GenericAlias(tuple, (one_of, ...))
    backends = Annotated[tables, Meta(min_length=1)]  # type: ignore[valid-type]  # made here
    made = msgspec.defstruct(
        "Config",
        [("backend", backends, (kinds.default,))],
        bases=(Config,),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return cast("type[Config]", made)


def contradictions(config: Config, kinds: KindRegistry) -> Iterator[str]:
    """Describe the settings that do not go together, a line each."""
    yield from _equal_names(config.backend)
    yield from _no_queue(config)
    yield from _faults_of_served(config.models)
    for index, backend in enumerate(config.backend):
        if found := kinds.of(backend).contradiction(backend):
            yield (
                f"backend[{index}].{found.key} = {shown(found.value)}: "
                f"needs {found.needs}"
            )


def _no_queue(config: Config) -> Iterator[str]:
    """Describe models on demand whose first request could never wait for the load."""
    if config.admission.max_queued:
        return
    if config.models.serve:
        yield (
            "admission.max_queued = 0: models.serve needs 1 at least, as its models are "
            "loaded on demand, which has requests wait"
        )
    if backend := next(filter(is_on_demand, config.backend), None):
        yield (
            f"admission.max_queued = 0: backend {backend.name} needs 1 at least, as its "
            "load = 'demand' has requests wait"
        )


def _faults_of_served(models: ModelsSettings) -> Iterator[str]:
    """Describe what is wrong with the names of the store models that are served."""
    names = () if isinstance(models.serve, bool) else models.serve
    for index, name in enumerate(names):
        where = f"models.serve[{index}]"
        try:
            check_name(name)
        except InvalidNameError as error:
            yield f"{where}: {error}"
        if name in names[:index]:
            yield f"{where} = {shown(name)}: it is listed already"


def _equal_names(backends: Sequence[BackendSettings]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for index, backend in enumerate(backends):
        if backend.name in seen:
            yield (
                f"backend[{index}].name = {backend.name!r}: each backend needs its own name"
            )
        seen[backend.name] = f"the name of backend {backend.name}"
    for index, backend in enumerate(backends):
        for alias in backend.aliases:
            if alias in seen:
                yield (
                    f"backend[{index}].aliases = {alias!r}: this is already {seen[alias]}"
                )
            seen[alias] = f"an alias of backend {backend.name}"
