"""Write a daemon's configuration and its environment."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

Table = dict[str, Any]
Config = Mapping[str, Any]

ABSENT: Final = Path(__file__).parents[1] / "fakes" / "absent"
"""Modules that a daemon must not find, since no installation has them."""


def to_toml(config: Config) -> str:
    """Write a configuration; strings, numbers and lists look as they do in JSON."""
    lines: list[str] = []
    for name, value in config.items():
        is_list = isinstance(value, list)
        for table in value if is_list else [value]:
            lines.append(f"[[{name}]]" if is_list else f"[{name}]")
            lines += [f"{key} = {_value(each)}" for key, each in table.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            f"{{{', '.join(f'{key} = {_value(each)}' for key, each in value.items())}}}"
        )
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def mock(**settings: Any) -> Table:
    """Make the table of a scripted backend."""
    return {"name": "mock", "kind": "mock", **settings}


def llamacpp(model: Path | str, **settings: Any) -> Table:
    """Make the table of a backend that runs a model, on one thread."""
    table = {"name": "chat", "kind": "llamacpp", "model": str(model), "n_threads": 1}
    return table | settings


def clean_environ() -> dict[str, str]:
    """Copy our environment without what would tell a daemon where it runs.

    A daemon in it writes no file of its log, and finds the packages of an installation.
    """
    ours = ("INFERD_CONFIG", "NOTIFY_SOCKET", "RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ours and not name.startswith("WATCHDOG_")
    }
    paths = [str(ABSENT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "INFERD_LOG_DIR": "", "PYTHONPATH": os.pathsep.join(paths)}
