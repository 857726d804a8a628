"""Code that every Python process of a daemon runs before its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def infected_environ(code: str) -> Iterator[dict[str, str]]:
    """Give variables by which Python imports this code first, as ``sitecustomize``."""
    with TemporaryDirectory(prefix="site-") as site:
        (Path(site) / "sitecustomize.py").write_text(code)
        inherited = os.environ.get("PYTHONPATH", "")
        yield {
            "PYTHONPATH": os.pathsep.join(filter(None, (site, inherited))),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
