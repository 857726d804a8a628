"""Checks of the machine and of what is installed on it."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from inferd.doctor.check import Finding, failed, ok, warning

PYTHON: Final = (3, 11)

PORTABLE_FLAGS: Final = frozenset({"avx", "avx2", "bmi2", "f16c", "fma", "sse4_2"})
"""What the portable build of llama.cpp uses of an x86-64 processor, in the kernel's names."""

_SWITCHES: Final = {
    "avx": "AVX",
    "avx2": "AVX2",
    "bmi2": "BMI2",
    "f16c": "F16C",
    "fma": "FMA",
    "sse4_2": "SSE42",
}
"""ggml's build options for them."""

_RUNTIME: Final = ("msgspec", "structlog", "trio")
_LLAMA: Final = ("llama-cpp-python", "jinja2", "numpy")


def check_python() -> Finding:
    """Is this Python new enough?"""
    found = platform.python_version()
    if sys.version_info < PYTHON:  # pragma: no cover  # pip refuses before
        return failed(f"{found}, 3.11 or later is needed", "make setup")
    return ok(f"{found} at {sys.executable}")


def check_packages() -> Finding:
    """Are the packages there, and the native ones as pinned?"""
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
    return ok(", ".join(f"{name} {each}" for name, each in found.items()))


def _pinned(package: str) -> str:
    """Find the exact version that inferd's own metadata asks for."""
    for requirement in requires("inferd") or ():
        if requirement.startswith(f"{package}=="):
            return requirement.removeprefix(f"{package}==").split(";")[0].strip()
    return ""


def check_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> Finding:
    """Has the processor what the portable build uses?"""
    if platform.machine() != "x86_64":
        return ok(f"{platform.machine()}: the portable build needs nothing special")
    try:
        flags = _cpu_flags(cpuinfo)
    except OSError as error:
        return warning(
            f"{cpuinfo}: {error.strerror}: nothing is known of the processor"
        )
    if missing := sorted(PORTABLE_FLAGS - flags):
        switches = " ".join(f"-DGGML_{_SWITCHES[flag]}=OFF" for flag in missing)
        return failed(
            f"the processor lacks {', '.join(missing)}, which llama.cpp was built for",
            f"CMAKE_ARGS='{switches}' make setup",
        )
    unused = sorted(flag for flag in flags if flag.startswith(("amx", "avx512f")))
    extra = f"; {', '.join(unused)} not used by the portable build" if unused else ""
    return ok(f"has {', '.join(sorted(PORTABLE_FLAGS))}{extra}")


def _cpu_flags(cpuinfo: Path) -> frozenset[str]:
    for line in cpuinfo.read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()
