"""Where `make setup` has put models and data, whatever `HOME` is when tests run."""

import sys
from pathlib import Path
from typing import Final

_FILE: Final = Path(sys.prefix) / "inferd-places"


def places() -> dict[str, str]:
    """Read the variables that name the store and the cache; none if there are none."""
    if not _FILE.is_file():
        return {}
    lines = _FILE.read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}
