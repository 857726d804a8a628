"""Import of modules without opening files: sources are read first, compiled on import.

Python modules are kept as text. Extension modules must be mapped, so they are imported at
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

MAX_PRELOADED_MODULES: Final = 4000
"""Modules that are kept; Python's library has some 900 of them, and inferd 350."""

_LIBRARY: Final = Path(sysconfig.get_path("stdlib"))
_PACKAGE: Final = Path(__file__).parents[2]
_EXTENSIONS: Final = "lib-dynload"
_EXCLUDED: Final = frozenset(
    (
        *("__pycache__", "dist-packages", "site-packages", "lib-dynload", "ensurepip"),
        *("test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo"),
    )
)
"""Folders of Python's library that audits do not need, larger than the rest of it."""
_NOT_IMPORTED: Final = ("_test", "_xx", "_ctypes_test", "_tkinter", "readline", "xx")
"""Prefixes of extensions that are for tests, or that take the terminal."""


class PreloadedModule(NamedTuple):
    """The source of a module that is not imported yet."""

    path: Path
    text: str


class PreloadedImporter(MetaPathFinder, ExecutionLoader):
    """Finder and loader of modules whose sources are in memory.

    Args:
        sources: by the full names of the modules.
    """

    def __init__(self, sources: dict[str, PreloadedModule]) -> None:
        self._sources = sources

    def find_spec(
        self,
        fullname: str,
        _path: Sequence[str] | None,
        _target: ModuleType | None = None,
        /,
    ) -> ModuleSpec | None:
        """Find a module; ``None`` if its source was not read."""
        if fullname not in self._sources:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def get_filename(self, fullname: str) -> str:
        """Return the path of the source."""
        return str(self._sources[fullname].path)

    def get_source(self, fullname: str) -> str:
        """Return the source, to compile and for tracebacks."""
        return self._sources[fullname].text

    def is_package(self, fullname: str) -> bool:
        """Tell whether the module is a package."""
        return self._sources[fullname].path.name == "__init__.py"


def preload_modules(beside: Path) -> None:
    """Read Python's library, inferd, and the modules beside a script, for later imports.

    Args:
        beside: the script's folder; packages in it are not read.
    """
    _import_extensions()
    paths = [
        *_python_files(_LIBRARY),
        *((path, _PACKAGE.parent) for path, _ in _python_files(_PACKAGE)),
        *((path, beside) for path in sorted(beside.glob("*.py"))),
    ]
    sources: dict[str, PreloadedModule] = {}
    for path, root in paths[:MAX_PRELOADED_MODULES]:
        with suppress(OSError, UnicodeDecodeError, SyntaxError):  # not a Python module
            text = importlib.util.decode_source(path.read_bytes())
            sources[_name(path.relative_to(root))] = PreloadedModule(path, text)
    sys.meta_path.insert(0, PreloadedImporter(sources))


def _python_files(
    root: Path, folder: Path | None = None
) -> Iterator[tuple[Path, Path]]:
    for entry in sorted((folder or root).iterdir()):
        if entry.is_dir():
            if entry.name not in _EXCLUDED:
                yield from _python_files(root, entry)
        elif entry.suffix == ".py":
            yield entry, root


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and parts[1:] else parts)


def _import_extensions() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are deprecated
        folders = [Path(entry) for entry in sys.path if entry.endswith(_EXTENSIONS)]
        for path in sorted(path for folder in folders for path in folder.glob("*")):
            name, dot, suffix = path.name.partition(".")
            is_wanted = not name.startswith(_NOT_IMPORTED)
            if is_wanted and dot + suffix in EXTENSION_SUFFIXES:
                with suppress(ImportError):  # its library is not installed
                    importlib.import_module(name)
