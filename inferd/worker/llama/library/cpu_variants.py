"""Choose and load the CPU variant of llama.cpp for this processor.

A library that was built with variants has its CPU code in separate shared libraries, and
loads none by itself. Each returns a score by the CPUID flags, which are not always true: a
virtual machine may report instructions that crash. So each choice is reported before it is
loaded, together with the fallback. Opening a library runs code of it, too: each variant is
reported before it is opened for its score.
"""

import ctypes
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from inferd.ipc.worker import CpuVariant
from inferd.worker.backend import LoadError, LoadReporter

UNSAFE: Final = frozenset({"sapphirerapids"})
"""Variants that are used only if configured: with AMX, the first decode crashes on virtual
machines. Not even their score is asked."""

_PREFIX: Final = "libggml-cpu-"
_SUFFIX: Final = ".so"


def find_variants(directory: Path) -> dict[str, Path]:
    """Find the variants beside a library, by name; empty if it was built without."""
    paths = sorted(directory.glob(f"{_PREFIX}*{_SUFFIX}"))
    return {
        path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX): path for path in paths
    }


def pick(
    paths: Mapping[str, Path],
    report: LoadReporter,
    *,
    wanted: str | None,
    crashed: Collection[str],
) -> CpuVariant:
    """Ask the variants for their scores and choose one.

    Args:
        paths: all variants by name.
        report: called with each variant before it is opened.
        wanted: the configured variant, the only one to be asked; ``None`` for the best.
        crashed: variants that must not be used, nor opened.

    Raises:
        LoadError: no variant is usable, or not the configured one.
    """
    if wanted is None:
        names = [name for name in paths if name not in {*UNSAFE, *crashed}]
        return choose({name: _ask(name, paths[name], names, report) for name in names})
    if wanted not in paths:
        raise LoadError(
            f'cpu_variant = "{wanted}": this build of llama.cpp has '
            f"{', '.join(sorted(paths)) or 'no variants'}"
        )
    if score(paths[wanted]) <= 0:
        raise LoadError(f'cpu_variant = "{wanted}": this processor cannot run it')
    return CpuVariant(name=wanted)


def _ask(name: str, path: Path, names: Sequence[str], report: LoadReporter) -> int:
    """Ask one of several variants for its score; any other takes its place if it crashes."""
    others = (each for each in names if each != name)
    report(CpuVariant(name=name, fallback=next(others, ""), is_asked=True))
    return score(path)


def choose(scores: Mapping[str, int]) -> CpuVariant:
    """Choose the variant with the highest score, and the next one as its fallback.

    Args:
        scores: of variants by name; 0 if the processor lacks required features.

    Raises:
        LoadError: no variant is usable.
    """
    fit = [name for name, score in scores.items() if score > 0]
    best, *lower = sorted(fit, key=lambda name: (-scores[name], name)) or [""]
    if not best:
        raise LoadError(
            "none of llama.cpp's variants for processors suits this one: "
            f"{', '.join(sorted(scores))}; run: make setup"
        )
    return CpuVariant(name=best, fallback=lower[0] if lower else "")


def score(path: Path) -> int:
    """Return a variant's score for this processor; 0 if it does not load."""
    try:
        return int(ctypes.CDLL(str(path)).ggml_backend_score())
    except (OSError, AttributeError):
        return 0


def load(library: ctypes.CDLL, path: Path) -> None:
    """Load a variant into the library.

    Raises:
        LoadError: the library refused it; its log on stderr says why.
    """
    ggml_backend_load = (
        library.ggml_backend_load
    )  # defined in a library that this one links
    ggml_backend_load.argtypes = [ctypes.c_char_p]
    ggml_backend_load.restype = ctypes.c_void_p
    if not ggml_backend_load(str(path).encode()):
        raise LoadError(
            "a variant of llama.cpp does not load; run: make setup",
            f"cannot load {path}; run: make setup",
        )
