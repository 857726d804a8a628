"""The table in ``inferd/__init__.py`` against the package."""

import importlib.util
import re

import inferd
from tests.cases import each_case

DOC = inferd.__doc__ or ""
RULER = re.compile(r"^=+  (=+)  =+  =+$", re.MULTILINE)
NAME = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*")
WORDS = {"module", "with"}


def named_modules() -> list[str]:
    ruler = RULER.search(DOC)
    assert ruler is not None
    column = slice(ruler.start(1) - ruler.start(), ruler.end(1) - ruler.start())
    table = DOC[ruler.start() : list(RULER.finditer(DOC))[-1].end()]
    names = {name for line in table.splitlines() for name in NAME.findall(line[column])}
    below = re.findall(r"``([a-z]+)``", DOC[ruler.start() :])
    return sorted((names | set(below)) - WORDS)


@each_case("name", named_modules())
def test_a_module_on_the_map_exists(name):
    assert importlib.util.find_spec(f"inferd.{name}") is not None


def test_the_map_has_every_step():
    steps = {
        "wire.codec",
        "resolve",
        "admission",
        "routing",
        "engine.streams",
        "output",
    }
    assert steps < set(named_modules())
