"""Checks of Python, the installed packages and the processor."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from inferd.doctor.check import Finding, failed, ok, warning

PYTHON: Final = (3, 11)

USUAL_FLAGS: Final = frozenset({"avx", "avx2", "bmi2", "f16c", "fma", "sse4_2"})
"""CPU flags of x86-64 processors since 2013 to 2015, as in ``/proc/cpuinfo``; llama.cpp's
code for older ones is slow."""

_MORE: Final = ("avx512f", "avx512_vnni", "avx_vnni")
"""CPU flags that llama.cpp has further variants for."""

_RUNTIME: Final = ("msgspec", "structlog", "trio")
_LLAMA: Final = ("llama-cpp-python", "jinja2", "numpy")


def check_python() -> Finding:
    """Check the version of Python."""
    found = platform.python_version()
    if sys.version_info < PYTHON:  # pragma: no cover  # pip refuses before
        return failed(f"{found}, 3.11 or later is needed", "make setup")
    return ok(f"{found} at {sys.executable}")


def check_packages() -> Finding:
    """Check that the packages are installed, native ones in the pinned version."""
    found = {name: version(name) for name in _RUNTIME}
    try:
        found |= {name: version(name) for name in _LLAMA}
    except PackageNotFoundError as error:
        return warning(
            f"{error.name} is not installed: no llamacpp backend", "make setup"
        )
    pinned = _pinned("llama-cpp-python")
    if pinned and found["llama-cpp-python"] != pinned:
        return failed(
            f"llama-cpp-python {found['llama-cpp-python']}, {pinned} is pinned",
            "make setup",
        )
    return ok(", ".join(f"{name} {number}" for name, number in found.items()))


def _pinned(package: str) -> str:
    """Return the exact version that inferd's package metadata requires, or nothing."""
    for requirement in requires("inferd") or ():
        if requirement.startswith(f"{package}=="):
            return requirement.removeprefix(f"{package}==").split(";")[0].strip()
    return ""


def check_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> Finding:
    """Check that the processor has the vector instructions that make decoding fast.

    The worker chooses the CPU variant; ``check_worker`` reports which.
    """
    if platform.machine() != "x86_64":
        return ok(f"{platform.machine()}: llama.cpp needs nothing special")
    try:
        flags = _cpu_flags(cpuinfo)
    except OSError as error:
        return warning(
            f"{cpuinfo}: {error.strerror}: cannot tell the processor's features"
        )
    if missing := sorted(USUAL_FLAGS - flags):
        return warning(f"the processor lacks {', '.join(missing)}: decoding is slow")
    more = (flag for flag in _MORE if flag in flags)
    return ok(f"has {', '.join([*sorted(USUAL_FLAGS), *more])}")


def _cpu_flags(cpuinfo: Path) -> frozenset[str]:
    for line in cpuinfo.read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()
