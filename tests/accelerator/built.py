"""The accelerator that llama.cpp was built for, and what another program says of its device."""

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

KINDS: Final = {"vulkan": "libggml-vulkan", "cuda": "libggml-cuda"}
"""Kinds by the library that a build for them has."""
MIB: Final = 1024 * 1024


class Driver(NamedTuple):
    """A device as another program tells it."""

    name: str
    n_bytes: int
    """Of its memory."""
    tolerance: float
    """Share of them by which ggml may see fewer: some drivers keep memory to themselves."""

    def agrees(self, n_bytes: int) -> bool:
        """Tell whether a number of bytes is that of the device."""
        return (1 - self.tolerance) * self.n_bytes <= n_bytes <= self.n_bytes


def built_kind() -> str:
    """Name the kind of accelerator that the installed llama.cpp was built for."""
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None, "run: make setup"
    assert spec.origin is not None
    libraries = {each.name for each in (Path(spec.origin).parent / "lib").iterdir()}
    found = [
        kind
        for kind, stem in KINDS.items()
        if any(each.startswith(stem) for each in libraries)
    ]
    assert found, (
        f"llama.cpp was built for none of {', '.join(KINDS)}: "
        "run make test-vulkan, or make setup with CMAKE_ARGS (docs/accelerators.md)"
    )
    return found[0]


def ask_driver(kind: str, directory: Path) -> Driver:
    """Ask the driver's own program for the first device.

    Args:
        kind: as ``built_kind`` gives it.
        directory: to start the program in: ``vulkaninfo`` can write files there.
    """
    if kind == "vulkan":
        text = output("vulkaninfo", directory=directory)
        [name, *_] = re.findall(r"deviceName\s*= (.+)", text)
        [size, *_] = re.findall(r"memoryHeaps\[0\]:\s*size\s*= (\d+)", text)
        return Driver(name, int(size), 0.0)
    [line, *_] = output(
        "nvidia-smi",
        "--query-gpu=name,memory.total",
        "--format=csv,noheader,nounits",
        directory=directory,
    ).splitlines()
    name, _, n_mib = line.rpartition(", ")
    return Driver(name, int(n_mib) * MIB, 0.05)


def output(*command: str, directory: Path) -> str:
    """Run a program; return what it prints."""
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=directory
    ).stdout
