"""Make `.venv` ready: build llama.cpp once, install, fetch the embedded models.

Run by `make setup` with any Python of 3.11 or later; it uses the standard library alone.
What takes long says so. A second run finds everything in the cache and does nothing.
"""

import hashlib
import os
import platform
import re
import shlex
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "inferd-setup"
CONSTRAINTS = ROOT / "constraints.txt"
TRIM = ROOT / "tools" / "llama.cmake"
VARIANTS = ROOT / "tools" / "variants.cmake"

OWN_ARGS = shlex.split(os.environ.get("CMAKE_ARGS", ""))  # -DGGML_CUDA=ON, say
# ggml's code for several kinds of processors, of which a worker loads the best: the wheel
# runs on the machine next door too. Who has options of one's own gets one kind of code.
HAS_VARIANTS = platform.machine() == "x86_64" and not OWN_ARGS
VARIANT_ARGS = ("-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=ON")
CMAKE_ARGS = (
    "-DGGML_NATIVE=OFF",  # -march=native would run here alone, and not even here with AMX
    "-DMTMD_VIDEO=OFF",  # it would run ffmpeg
    "-DLLAMA_OPENSSL=OFF",
    *(VARIANT_ARGS if HAS_VARIANTS else ()),
    *OWN_ARGS,
)
TRIM_ARG = f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={TRIM}"
CHOICE_ARGS = (f"-DCMAKE_PROJECT_ggml_INCLUDE={VARIANTS}",) if HAS_VARIANTS else ()
LEFT_OUT = "llama_cpp/lib/libleft-out-*"
EXTRAS = "llama,whisper,media,dev"
STEP = re.compile(r"^\s*\[(\d+)/(\d+)\]")
SAY_EVERY_S = 10.0


def main() -> int:
    """Do what is missing."""
    wanted = fingerprint()
    if STAMP.is_file() and STAMP.read_text() == wanted:
        return fetch()
    make_venv()
    wheel = llama_wheel(PYTHON)
    say("installing inferd and its tools into .venv")
    # Another build of the same version counts as installed otherwise.
    pip("install", "--force-reinstall", "--no-deps", str(wheel))
    pip("install", "--constraint", str(CONSTRAINTS), "--editable", f"{ROOT}[{EXTRAS}]")
    STAMP.write_text(wanted)
    return fetch()


def say(text: str) -> None:
    """Tell the person who waits."""
    print(f"[setup] {text}", file=sys.stderr, flush=True)


def fingerprint() -> str:
    """Everything that an environment depends on, in one word."""
    digest = hashlib.sha256()
    for path in (ROOT / "pyproject.toml", CONSTRAINTS, TRIM, VARIANTS, Path(__file__)):
        digest.update(path.read_bytes())
    digest.update(f"{sys.version}{ROOT}{CMAKE_ARGS}".encode())
    return digest.hexdigest()


def make_venv() -> None:
    """Create `.venv` afresh unless its Python is the one that runs this."""
    if PYTHON.exists():
        return
    say(f"creating .venv with Python {platform.python_version()}")
    venv.create(VENV, with_pip=True)
    pip("install", "--constraint", str(CONSTRAINTS), "pip")


def pip(*arguments: str) -> None:
    """Run the environment's pip; its chatter only if it fails."""
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.stderr.write(result.stdout + result.stderr)
        sys.exit(2)


def cache() -> Path:
    """Give the directory of what is built once for all checkouts."""
    given = os.environ.get("INFERD_CACHE_DIR")
    xdg = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(xdg) / "inferd"


def llama_wheel(python: Path) -> Path:
    """Find llama-cpp-python's wheel in the cache, or build it."""
    version = pinned("llama-cpp-python")
    key = hashlib.sha256(
        "\n".join(
            (
                version,
                *CMAKE_ARGS,
                TRIM.read_text(),
                *(VARIANTS.read_text() for _ in CHOICE_ARGS),
                platform.machine(),
                *platform.libc_ver(),
            )
        ).encode()
    ).hexdigest()[:16]
    directory = cache() / "wheels" / f"llama-cpp-python-{version}-{key}"
    if wheels := list(directory.glob("*.whl")):
        return wheels[0]
    say(f"building llama-cpp-python {version} once; it takes 5 to 10 minutes")
    build(python, version, directory)
    [wheel] = directory.glob("*.whl")
    say(f"kept as {wheel}")
    return wheel


def pinned(package: str) -> str:
    """Read the exact version that pyproject.toml asks for."""
    found = re.search(rf'"{package}==([^"]+)"', (ROOT / "pyproject.toml").read_text())
    if not found:
        raise KeyError(package)
    return found[1]


def build(python: Path, version: str, directory: Path) -> None:
    """Compile the wheel, saying now and then how far it is."""
    directory.mkdir(parents=True, exist_ok=True)
    command = [
        *(str(python), "-m", "pip", "wheel", "--verbose", "--no-deps"),
        "--no-cache-dir",  # pip's own cache knows nothing of CMAKE_ARGS
        *("--disable-pip-version-check", "--no-binary", "llama-cpp-python"),
        *("--config-settings", "build.targets=llama;mtmd"),
        *("--config-settings", f"wheel.exclude={LEFT_OUT}"),
        *("--wheel-dir", str(directory), f"llama-cpp-python=={version}"),
    ]
    environ = os.environ | {
        "CMAKE_ARGS": shlex.join((*CMAKE_ARGS, TRIM_ARG, *CHOICE_ARGS))
    }
    log = directory / "build.log"
    with (
        log.open("w") as file,
        subprocess.Popen(
            command,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        file.writelines(progress(process.stdout or []))
    if process.returncode:
        say("".join(log.read_text().splitlines(keepends=True)[-40:]))
        say(f"error: llama-cpp-python did not build; the whole log is {log}")
        sys.exit(2)


def progress(lines: Iterable[str]) -> Iterator[str]:
    """Pass lines on; say how many steps are done, every ten seconds at most."""
    said_at = time.monotonic()
    for line in lines:
        step = STEP.match(line)
        if step and time.monotonic() - said_at >= SAY_EVERY_S:
            said_at = time.monotonic()
            say(f"compiling llama.cpp: {step[1]} of {step[2]} steps")
        yield line


def fetch() -> int:
    """Bring the embedded models into the cache, and what the tests compare with."""
    for module in ("inferd.models", "tools.schema_suite", "tools.spoken_clip"):
        result = subprocess.run([str(PYTHON), "-m", module], check=False, cwd=ROOT)
        if result.returncode:
            return result.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
