"""llama-cpp-python's wheel: built once for all checkouts, and checked before each use.

It is in the cache beside `SHA256SUMS`, which has the digest of the build. If anybody but the
owner may write to the directory (`tools.trusted`), it is not used.
"""

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferd.trusted_path import UntrustedError, open_directory
from tools.packages import BUILDING, PIP, ROOT, download_source, pinned, pinned_block
from tools.trusted import open_file, sha256_of

PACKAGE: Final = "llama-cpp-python"
BUILT_WITH: Final = (PACKAGE, "scikit-build-core", "cmake", "ninja")
TRIM = ROOT / "tools" / "llama.cmake"
VARIANTS = ROOT / "tools" / "variants.cmake"

OWN_ARGS = shlex.split(os.environ.get("CMAKE_ARGS", ""))  # -DGGML_CUDA=ON, say
# ggml's code for several kinds of processors, of which a worker loads the best, so that the
# wheel runs on other machines too. With options in CMAKE_ARGS there is one kind of code.
HAS_VARIANTS = platform.machine() == "x86_64" and not OWN_ARGS
VARIANT_ARGS = ("-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=ON")
BASE_ARGS = (
    "-DGGML_NATIVE=OFF",  # -march=native runs on this machine only, and crashes with AMX
    "-DMTMD_VIDEO=OFF",  # it would run ffmpeg
    "-DLLAMA_OPENSSL=OFF",
)
CMAKE_ARGS = (
    *BASE_ARGS,
    *(VARIANT_ARGS if HAS_VARIANTS else ()),
    *OWN_ARGS,
)
TRIM_ARG = f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={TRIM}"
CHOICE_ARGS = (f"-DCMAKE_PROJECT_ggml_INCLUDE={VARIANTS}",) if HAS_VARIANTS else ()
LEFT_OUT = "llama_cpp/lib/libleft-out-*"
STEP = re.compile(r"^\s*\[(\d+)/(\d+)\]")
SAY_EVERY_S = 10.0
RECORD: Final = "SHA256SUMS"
"""File with the digest, in the format of `sha256sum`."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel that was built here."""

    path: Path
    sha256: str
    """When it was built; it was checked since."""


def say(text: str) -> None:
    """Print a message for the person who waits."""
    print(f"[setup] {text}", file=sys.stderr, flush=True)


def cache() -> Path:
    """Return the directory for builds that all checkouts share."""
    given = os.environ.get("INFERD_CACHE_DIR")
    xdg = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(xdg) / "inferd"


def llama_wheel(python: Path) -> Wheel:
    """Find the wheel in the cache and check it, or build it.

    Ends the program if its digest differs, or others may write to the cache.
    """
    version = pinned(PACKAGE)
    directory = cache() / "wheels" / f"{PACKAGE}-{version}-{key(version)}"
    try:
        os.close(open_directory(directory.parent, makes=True))
        if not directory.is_dir():
            say(f"building {PACKAGE} {version} once; it takes 5 to 10 minutes")
            build(python, directory)
            say(f"kept in {directory}")
        return checked(directory)
    except (UntrustedError, OSError) as error:
        say(f"error: {error}")
        sys.exit(2)


def key(version: str) -> str:
    """Return a key of everything that a build depends on."""
    words = (
        version,
        *CMAKE_ARGS,
        TRIM.read_text(),
        *(VARIANTS.read_text() for _ in CHOICE_ARGS),
        *map(pinned_block, BUILT_WITH),
        platform.machine(),
        *platform.libc_ver(),
    )
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def checked(directory: Path) -> Wheel:
    """Return the wheel of a directory, if its digest is right.

    Raises:
        UntrustedError: the digest differs, or others may write there.
        OSError: a file is missing.
    """
    opened = open_directory(directory)
    try:
        recorded, name = read(RECORD, opened).split()
        wheel = open_file(Path(name).name, opened)
        try:
            actual = sha256_of(wheel)
        finally:
            os.close(wheel)
    finally:
        os.close(opened)
    if actual != recorded:
        raise UntrustedError(
            f"SHA-256 of {directory / name} is {actual}; when it was built it was "
            f"{recorded}; remove {directory} to have it built again"
        )
    return Wheel(directory / name, recorded)


def read(name: str, directory: int) -> str:
    """Read a short file."""
    with os.fdopen(open_file(name, directory)) as file:
        return file.read(4096)


def build(python: Path, directory: Path) -> None:
    """Compile the wheel and write its digest; the directory appears when it is complete.

    The log is beside it, also if the build fails.
    """
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".building-") as name:
        scratch = Path(name)
        (scratch / "source").mkdir()
        (scratch / "wheel").mkdir(mode=0o755)
        archive = download_source(python, PACKAGE, scratch / "source")
        compile_archive(python, archive, scratch / "wheel", directory)
        [wheel] = (scratch / "wheel").glob("*.whl")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        (scratch / "wheel" / RECORD).write_text(f"{digest}  {wheel.name}\n")
        shutil.rmtree(directory, ignore_errors=True)
        (scratch / "wheel").rename(directory)


def compile_archive(python: Path, archive: Path, target: Path, directory: Path) -> None:
    """Compile the sources with pip, reporting progress now and then."""
    command = [
        *(str(python), *PIP, "wheel", "--verbose", "--no-deps", *BUILDING),
        "--no-cache-dir",  # pip's own cache knows nothing of CMAKE_ARGS
        *("--config-settings", "build.targets=llama;mtmd"),
        *("--config-settings", f"wheel.exclude={LEFT_OUT}"),
        *("--wheel-dir", str(target), str(archive)),
    ]
    environ = os.environ | {
        "CMAKE_ARGS": shlex.join((*CMAKE_ARGS, TRIM_ARG, *CHOICE_ARGS))
    }
    log = directory.with_name(f"{directory.name}.log")
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
        say(f"error: {PACKAGE} did not build; the whole log is {log}")
        sys.exit(2)


def progress(lines: Iterable[str]) -> Iterator[str]:
    """Pass lines on; report the number of finished steps every ten seconds at most."""
    said_at = time.monotonic()
    for line in lines:
        step = STEP.match(line)
        if step and time.monotonic() - said_at >= SAY_EVERY_S:
            said_at = time.monotonic()
            say(f"compiling llama.cpp: {step[1]} of {step[2]} steps")
        yield line
