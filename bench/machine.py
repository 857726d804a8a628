"""The facts of a run: the machine, the versions, the flags."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import inferd
from bench.peers.build import FLAGS, tool
from tools.wheel import CMAKE_ARGS

PACKAGES: Final = ("llama-cpp-python", "llguidance", "msgspec", "numpy", "trio")
CPU_FACTS: Final = {"model name": "cpu", "flags": "cpu_flags", "cpu MHz": "cpu_mhz"}


def machine() -> dict[str, Any]:
    """Give what the figures depend on."""
    return {
        **cpu(Path("/proc/cpuinfo").read_text()),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": list(os.getloadavg()),
        "memory_mb": round(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e6
        ),
        "system": platform.platform(),
    }


def cpu(cpuinfo: str) -> dict[str, str]:
    """Read the kernel's description of the first core."""
    first = cpuinfo.split("\n\n", maxsplit=1)[0]
    facts = dict(line.partition(":")[::2] for line in first.splitlines() if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    return {ours: facts[name] for name, ours in CPU_FACTS.items() if name in facts}


def versions(*, with_peers: bool) -> dict[str, str]:
    """Give the versions of what is measured, and of what measures."""
    return {
        "inferd": inferd.__version__,
        "commit": commit(),
        "python": sys.version.split()[0],
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        **({"llama.cpp": llama_cpp()} if with_peers else {}),
    }


def commit() -> str:
    """Give the checkout's commit, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    root = Path(inferd.__file__).parent
    try:
        result = subprocess.run(
            command, cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return result.stdout.strip()


def llama_cpp() -> str:
    """Ask llama.cpp's tools for their version."""
    result = subprocess.run(
        [str(tool("llama-server")), "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (result.stdout + result.stderr).splitlines()
    return next((line for line in lines if "version" in line), "unknown").strip()


def flags() -> dict[str, list[str]]:
    """Give the build's flags: the wheel's, and the peers'."""
    return {"wheel": list(CMAKE_ARGS), "peers": list(FLAGS)}
