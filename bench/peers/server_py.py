"""The server among the binding's examples: the strongest one in Python on that library.

It runs in an environment of its own, with our build of the binding, and is kept there
with what it needs from the package registry.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from bench.lab import Lab
from bench.peers.build import say
from bench.peers.llama_server import RunningServer, free_port, running
from bench.peers.source import sources
from bench.templates import TEMPLATES
from inferd.paths import cache_directory
from tools.packages import PIP, install, install_file, install_pip, pinned_block
from tools.wheel import CMAKE_ARGS, PACKAGE, llama_wheel

NEEDS: Final = (
    *("fastapi", "jinja2", "numpy", "openai", "pydantic", "safetensors"),
    *("uvicorn", "websockets"),
)
"""As the head of its file lists them."""
ALONE: Final = "-I"
"""Python's option to see nothing but its own environment."""
LAUNCH: Final = """
import os, runpy, sys, types
from llama_cpp import llama_cpp
library = llama_cpp._lib
library.ggml_backend_load_all_from_path(os.path.dirname(library._name).encode())
sys.modules["llama_cpp.mtmd_cpp"] = types.ModuleType("mtmd_cpp")
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""It loads no variant of the CPU code, where there are several; and it imports the library
for images, which our build does not have, and does not use it without a model for them."""
N_BATCH: Final = 128
"""As its own example configurations have it."""


class UnavailableError(Exception):
    """It cannot be had here; the text is why."""


@cache
def home() -> Path:
    """Find its environment in the cache, or make it.

    Raises:
        UnavailableError: what it needs is not to be had.
    """
    needed = map(pinned_block, (PACKAGE, *NEEDS))
    words = (*needed, *CMAKE_ARGS, sys.version)
    key = hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
    directory = cache_directory() / "peers" / f"server.py-{key}"
    if not (directory / "server.py").is_file():
        say("making an environment for the binding's server once")
        make(directory)
    return directory


def make(directory: Path) -> None:
    """Install what it needs; its file comes last, so that it stands for all of it."""
    venv.create(directory / "venv", with_pip=True, clear=True)
    python = directory / "venv" / "bin" / "python"
    wheel = llama_wheel(python)
    try:
        install_pip(python)
        install_file(python, PACKAGE, wheel.path, wheel.sha256)
        install(python, PACKAGE, *NEEDS)
    except SystemExit as error:
        raise UnavailableError("its packages could not be installed") from error
    with sources() as binding:
        shutil.copy(binding / "examples" / "server" / "server.py", directory)


def packages() -> str:
    """List what its environment holds."""
    python = home() / "venv" / "bin" / "python"
    command = [str(python), ALONE, *PIP, "freeze"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return " ".join(line for line in result.stdout.split("\n") if "==" in line)


@contextmanager
def running_server_py(lab: Lab, *, n_slots: int, n_ctx: int) -> Iterator[RunningServer]:
    """Run it on the lab's model while inside.

    Raises:
        UnavailableError: it cannot be had here.
    """
    directory = home()
    port = free_port()
    config = configuration(lab, n_slots=n_slots, n_ctx=n_ctx)
    lab.note_text(f"server.py -C {json.dumps(config)}")
    file = directory / f"config-{port}.json"
    file.write_text(json.dumps({**config, "server": {"port": port}}))
    python = directory / "venv" / "bin" / "python"
    command = [str(python), ALONE, "-c", LAUNCH, str(directory / "server.py")]
    try:
        with running([*command, "-C", str(file)], port, "/healthz") as server:
            yield server
    finally:
        file.unlink()


def configuration(lab: Lab, *, n_slots: int, n_ctx: int) -> dict[str, Any]:
    """Write its configuration, all but the port."""
    template = TEMPLATES.get(lab.model.family or "")
    return {
        "model": {
            "path": str(lab.model.path),
            "n_gpu_layers": lab.n_gpu_layers,
            "n_ctx": n_ctx * n_slots,
            "n_seq_max": n_slots,
            "n_batch": N_BATCH,
            "n_ubatch": N_BATCH,
            "threads": lab.n_threads,
            "threads_batch": lab.n_threads,
            "store_logits": False,
            **({"chat_template": template} if template else {}),
        }
    }
