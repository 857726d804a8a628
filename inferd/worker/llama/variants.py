"""Choose and load the library's code for this machine's processor.

A library that was built with variants has that code in libraries of its own, and loads
none by itself. Each tells how well it suits the processor by what the processor says of
itself, which is not always what it can do: a virtual machine may promise instructions
that it does not have. So each choice is told before it is loaded, with what comes next.
"""

import ctypes
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from inferd.ipc import Variant
from inferd.worker.backend import LoadError

UNSAFE: Final = frozenset({"sapphirerapids"})
"""Variants that nobody gets who did not ask: with AMX, whose first decode crashes on
virtual machines. Even asking one for its score is left out."""

_PREFIX: Final = "libggml-cpu-"
_SUFFIX: Final = ".so"


def find_variants(directory: Path) -> dict[str, Path]:
    """Find the variants beside a library, by name; none if it was built without."""
    paths = sorted(directory.glob(f"{_PREFIX}*{_SUFFIX}"))
    return {
        path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX): path for path in paths
    }


def pick(
    paths: Mapping[str, Path], *, wanted: str | None, crashed: Collection[str]
) -> Variant:
    """Ask the variants and take one.

    Args:
        paths: of all by name.
        wanted: the only one to be used, and asked; ``None`` for the best.
        crashed: those that are not to be used.

    Raises:
        LoadError: no variant will do, or not the wanted one.
    """
    if wanted is None:
        asked = {
            name: score(path) for name, path in paths.items() if name not in UNSAFE
        }
        return choose(asked, crashed)
    if wanted not in paths:
        raise LoadError(
            f'cpu_variant = "{wanted}": this build of llama.cpp has '
            f"{', '.join(sorted(paths)) or 'no variants'}"
        )
    if score(paths[wanted]) <= 0:
        raise LoadError(f'cpu_variant = "{wanted}": this processor cannot run it')
    return Variant(name=wanted)


def choose(scores: Mapping[str, int], crashed: Collection[str]) -> Variant:
    """Take the variant with the highest score, and the one that comes after it.

    Args:
        scores: of variants by name; 0 where the processor lacks what one needs.
        crashed: those that are not to be used.

    Raises:
        LoadError: there is none.
    """
    fit = [name for name, score in scores.items() if score > 0 and name not in crashed]
    best, *lower = sorted(fit, key=lambda name: (-scores[name], name)) or [""]
    if not best:
        raise LoadError(
            "none of llama.cpp's variants for processors suits this one: "
            f"{', '.join(sorted(scores))}; run: make setup"
        )
    return Variant(name=best, lower=lower[0] if lower else "")


def score(path: Path) -> int:
    """Ask a variant; a library that cannot be asked suits none."""
    try:
        return int(ctypes.CDLL(str(path)).ggml_backend_score())
    except (OSError, AttributeError):
        return 0


def load(library: ctypes.CDLL, path: Path) -> None:
    """Have the library load a variant.

    Raises:
        LoadError: it refused; its log, on stderr, says why.
    """
    ggml_backend_load = library.ggml_backend_load  # of a library that this one needs
    ggml_backend_load.argtypes = [ctypes.c_char_p]
    ggml_backend_load.restype = ctypes.c_void_p
    if not ggml_backend_load(str(path).encode()):
        raise LoadError(
            "a variant of llama.cpp does not load; run: make setup",
            f"cannot load {path}; run: make setup",
        )
