"""Checks of Python, the installed packages and the processor."""

import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final, NamedTuple

from inferd.doctor.check import Finding, failed, ok, warning
from inferd.installation import command_to_add
from inferd.memory.available import GroupLimit
from inferd.memory.plan import mib

PYTHON: Final = (3, 11)

USUAL_FLAGS: Final = frozenset({"avx", "avx2", "bmi2", "f16c", "fma", "sse4_2"})
"""CPU flags of x86-64 processors since 2013 to 2015, as in ``/proc/cpuinfo``; llama.cpp's
code for older ones is slow."""

_MORE: Final = ("avx512f", "avx512_vnni", "avx_vnni")
"""CPU flags that llama.cpp has further variants for."""

_ROOM: Final = 4
"""Times the reserve that a control group should have for a start; large models need more."""

_CLOCK_TOLERANCE_S: Final = 24 * 60 * 60
"""Seconds by which a clock may differ from that of another machine, in another time zone."""

_RUNTIME: Final = ("msgspec", "structlog", "trio")
_LLAMA: Final = ("llama-cpp-python", "jinja2", "numpy")


LIBRARY_VARIABLE: Final = "LLAMA_CPP_LIB_PATH"
"""Environment variable that replaces the native library by another build."""


def reinstall_hint(
    prefix: str = sys.prefix, environ: Mapping[str, str] = os.environ
) -> str:
    """Return the command that brings llama.cpp, or the library that was tested.

    Args:
        prefix: where Python's packages are.
        environ: may name another build, which nothing but leaving it out mends.
    """
    if environ.get(LIBRARY_VARIABLE):
        return f"unset {LIBRARY_VARIABLE}"
    return command_to_add("llama", prefix)


class Limits(NamedTuple):
    """Limits of a daemon's process."""

    max_files: int | None = None
    """Open files; ``None`` for no limit."""
    memory: GroupLimit | None = None
    """What its control groups leave it; ``None`` for no limit."""
    reserve: int = 0
    """Bytes that the daemon does not give to models."""
    unit: str = ""
    """The service that has these limits, if it is one."""


def check_python() -> Finding:
    """Check the version of Python."""
    found = platform.python_version()
    if sys.version_info < PYTHON:  # pragma: no cover  # pip refuses before
        return failed(f"{found}, 3.11 or later is needed", reinstall_hint())
    return ok(f"{found} at {sys.executable}")


def check_packages() -> Finding:
    """Check that the packages are installed, native ones in the pinned version."""
    try:
        found = {name: version(name) for name in _RUNTIME}
    except PackageNotFoundError as error:
        return failed(f"{error.name} is not installed", reinstall_hint())
    try:
        found |= {name: version(name) for name in _LLAMA}
    except PackageNotFoundError as error:
        return warning(
            f"{error.name} is not installed: no llamacpp backend", reinstall_hint()
        )
    try:
        pinned = _pinned("llama-cpp-python")
    except PackageNotFoundError:  # a checkout that was put on Python's path
        return warning(
            "inferd is not installed: the version of llama-cpp-python was not compared",
            reinstall_hint(),
        )
    if pinned and found["llama-cpp-python"] != pinned:
        return failed(
            f"llama-cpp-python {found['llama-cpp-python']}, {pinned} is pinned",
            reinstall_hint(),
        )
    return ok(", ".join(f"{name} {number}" for name, number in found.items()))


def _pinned(package: str) -> str:
    """Return the exact version that inferd's package metadata requires, or nothing.

    Raises:
        PackageNotFoundError: there is no such metadata.
    """
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


def check_clock(now: float, built: float) -> Finding:
    """Check that the clock is not behind the time at which inferd was installed.

    Args:
        now: the time of the clock, seconds since 1970.
        built: when a file of inferd was written.
    """
    text = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if now < built - _CLOCK_TOLERANCE_S:
        then = datetime.fromtimestamp(built, UTC).strftime("%Y-%m-%d")
        return warning(
            f"it says {text}, and inferd was installed on {then}: the log has wrong "
            "times, and models cannot be fetched",
            "sudo timedatectl set-ntp true",
        )
    return ok(text)


def check_limits(limits: Limits, n_wanted: int) -> Finding:
    """Check the limits of the process: open files, memory of its control group.

    Args:
        limits: of the daemon.
        n_wanted: descriptors that the configured connections and backends take.
    """
    files = "unlimited" if limits.max_files is None else str(limits.max_files)
    group = limits.memory
    memory = "unlimited" if group is None else f"{mib(group.n_bytes)} ({group.group})"
    detail = f"open files {files}, memory of the control group {memory}"
    if limits.max_files is not None and limits.max_files < n_wanted:
        return warning(
            f"{detail}; {n_wanted} open files are wanted, so fewer clients may connect",
            _files_hint(limits.unit, n_wanted),
        )
    if group is not None and group.n_bytes <= limits.reserve:
        return failed(
            f"{detail}; [memory] reserve keeps {mib(limits.reserve)} of it",
            _memory_hint(limits, group.group),
        )
    return ok(detail)


def _files_hint(unit: str, n_wanted: int) -> str:
    if unit:
        return _drop_in_hint(unit, "zz-files.conf", f"LimitNOFILE={n_wanted}")
    return f"ulimit -Hn {n_wanted}, or lower limits.max_connections"


def _memory_hint(limits: Limits, group: str) -> str:
    if limits.unit:
        line = f"MemoryMax={_ROOM * limits.reserve}"
        return _drop_in_hint(limits.unit, "zz-memory.conf", line, group)
    return f"raise the limit of the control group {group}, or lower [memory] reserve"


def _drop_in_hint(unit: str, name: str, line: str, of: str = "") -> str:
    """Write the commands that set something of a service, whatever other drop-ins say.

    Args:
        unit: the service.
        name: of the file.
        line: that it has.
        of: the unit that has the setting; a slice, or by default the service.
    """
    section = "Slice" if of.endswith(".slice") else "Service"
    directory = f"/etc/systemd/system/{of or unit}.d"
    return (
        f"sudo mkdir -p {directory}; "
        f"printf '[{section}]\\n{line}\\n' | sudo tee {directory}/{name}; "
        f"sudo systemctl daemon-reload; sudo systemctl restart {unit}"
    )
