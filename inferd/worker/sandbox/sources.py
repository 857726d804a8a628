"""Modules that are imported where no file can be opened: read before, compiled when asked.

What is written in Python waits as text. What is not has to be mapped, so it is imported at
once.
"""

import importlib
import importlib.util
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

MAX_SOURCES: Final = 4000
"""Modules that are kept; Python's own library has some 900 that are, and we 350."""

_LIBRARY: Final = Path(sysconfig.get_path("stdlib"))
_PACKAGE: Final = Path(__file__).parents[2]
_EXTENSIONS: Final = "lib-dynload"
_LEFT_OUT: Final = frozenset(
    (
        *("__pycache__", "dist-packages", "site-packages", "lib-dynload", "ensurepip"),
        *("test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo"),
    )
)
"""Folders of it that audits have no use for: together they are larger than the rest."""
_NOT_IMPORTED: Final = ("_test", "_xx", "_ctypes_test", "_tkinter", "readline", "xx")
"""What extensions begin with that are for tests, or that take the terminal."""


class Source(NamedTuple):
    """A module that is not imported yet."""

    path: Path
    text: str


class KeptSources(MetaPathFinder, ExecutionLoader):
    """Finds and loads modules by texts in memory.

    Args:
        sources: by the full names of the modules.
    """

    def __init__(self, sources: dict[str, Source]) -> None:
        self._sources = sources

    def find_spec(
        self,
        fullname: str,
        _path: Sequence[str] | None,
        _target: ModuleType | None = None,
        /,
    ) -> ModuleSpec | None:
        """Find a module; ``None`` where there is no text of it."""
        if fullname not in self._sources:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def get_filename(self, fullname: str) -> str:
        """Tell where its text was read."""
        return str(self._sources[fullname].path)

    def get_source(self, fullname: str) -> str:
        """Give its text, to compile and for tracebacks."""
        return self._sources[fullname].text

    def is_package(self, fullname: str) -> bool:
        """Tell whether it has modules below it."""
        return self._sources[fullname].path.name == "__init__.py"


def keep_library(beside: Path) -> None:
    """Read Python's own library, ours, and what lies beside a script, for later imports.

    Args:
        beside: the script's folder; packages in it are not read.
    """
    _import_extensions()
    paths = [
        *_python_files(_LIBRARY),
        *((path, _PACKAGE.parent) for path, _ in _python_files(_PACKAGE)),
        *((path, beside) for path in sorted(beside.glob("*.py"))),
    ]
    sources: dict[str, Source] = {}
    for path, root in paths[:MAX_SOURCES]:
        with suppress(
            OSError, UnicodeDecodeError, SyntaxError
        ):  # no module of Python's
            text = importlib.util.decode_source(path.read_bytes())
            sources[_name(path.relative_to(root))] = Source(path, text)
    sys.meta_path.insert(0, KeptSources(sources))


def _python_files(
    root: Path, folder: Path | None = None
) -> Iterator[tuple[Path, Path]]:
    for entry in sorted((folder or root).iterdir()):
        if entry.is_dir():
            if entry.name not in _LEFT_OUT:
                yield from _python_files(root, entry)
        elif entry.suffix == ".py":
            yield entry, root


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and parts[1:] else parts)


def _import_extensions() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are deprecated
        folders = [Path(each) for each in sys.path if each.endswith(_EXTENSIONS)]
        for path in sorted(each for folder in folders for each in folder.glob("*")):
            name, dot, suffix = path.name.partition(".")
            is_wanted = not name.startswith(_NOT_IMPORTED)
            if is_wanted and dot + suffix in EXTENSION_SUFFIXES:
                with suppress(ImportError):  # of a library that is not installed
                    importlib.import_module(name)
