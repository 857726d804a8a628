"""List all that is wrong with a configuration, not just the first thing.

A refused key is removed from the document, or replaced where it is required, and what is
left is converted again.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Final, cast

import msgspec

from inferd.config.explain import STEP, Explainer, Explanation, look_up, one_line
from inferd.config.kinds.registry import KINDS, KindRegistry
from inferd.config.parse import (
    config_type,
    contradictions,
    convert_config,
    parse_toml,
)
from inferd.config.settings import Config, ConfigError

MAX_FAULTS: Final = 50
"""Errors of one file that are listed: each costs a conversion of the document."""


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that was examined."""

    faults: list[str]
    """What is wrong with it, a line each; no more than ``MAX_FAULTS``."""
    config: Config | None
    """``None`` if something is wrong."""


def examine_config(text: str, kinds: KindRegistry = KINDS) -> Examined:
    """Examine a TOML configuration: find all faults that ``parse_config`` would raise.

    Args:
        text: of the file.
        kinds: the kinds of backends that it may have.
    """
    try:
        document = parse_toml(text)
    except ConfigError as error:
        return Examined(faults=[str(error)], config=None)
    repair = _Repair(document, kinds)
    faults = [one_line(fault) for fault in repair.faults()]
    return Examined(faults=faults, config=None if faults else repair.config)


class _Repair:
    """A document whose refused keys are removed one by one.

    Args:
        document: parsed TOML, which is changed.
        kinds: the kinds of backends that it may have.
    """

    def __init__(self, document: dict[str, object], kinds: KindRegistry) -> None:
        self.config: Config | None = None
        self._document = document
        self._kinds = kinds
        self._tables = config_type(kinds)
        # It reads the document as it is then, and shows the values that it had.
        self._explainer = Explainer(self._tables, document, deepcopy(document))
        self._refused: set[str] = set()

    def faults(self) -> Iterator[str]:
        """Yield what is wrong, until nothing is or ``MAX_FAULTS`` keys were refused."""
        for _ in range(MAX_FAULTS):
            try:
                self.config = convert_config(self._document, self._tables)
            except msgspec.ValidationError as error:
                found = self._explainer.explain(str(error))
                is_new = found.key not in self._refused
                if is_new:
                    yield found.text
                if not self._mend(found):
                    return
            else:
                yield from contradictions(self.config, self._kinds)
                return

    def _mend(self, found: Explanation) -> bool:
        """Remove or replace what was refused; return whether there was something."""
        self._refused.add(found.key)
        steps = [name or int(index) for name, index in STEP.findall(found.key)]
        if not steps:
            return False
        parent = look_up(self._document, _joined(steps[:-1]))
        last = steps[-1]
        if isinstance(last, int):
            return self._mend(found._replace(key=_joined(steps[:-1])))
        if not isinstance(parent, dict):
            return False
        if last == "kind":
            self._replace_backend(cast("dict[str, object]", parent))
        elif found.is_missing:
            parent[last] = _unique(len(self._refused)) if last == "name" else 1
        else:
            parent.pop(last, None)
        return True

    def _replace_backend(self, backend: dict[str, object]) -> None:
        """Make a table whose kind is unknown one of the default kind, with no settings."""
        name = backend.get("name")
        backend.clear()
        default = type(self._kinds.default).__struct_config__
        backend[str(default.tag_field)] = default.tag
        backend["name"] = name if name is not None else _unique(len(self._refused))


def _unique(number: int) -> str:
    """Make a name for a backend without one, which no other has."""
    return f"unnamed-{number}"


def _joined(steps: list[str | int]) -> str:
    """Join the steps of a path as msgspec writes it."""
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps
    ).lstrip(".")
