"""The archive that travels: a checkout, the sources of llama.cpp, wheels and headers."""

import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tools.accelerator_trial.workspace import TrialError, Workspace, say
from tools.packages import (
    CHECKED,
    ROOT,
    WHEELS_ALONE,
    download_source,
    install_pip,
    pip,
    unpack,
    wanted,
)
from tools.wheel import PACKAGE

MAX_BYTES: Final = 64 * 2**20
"""Bytes of the archive; cmake's wheel is half of what there is room for."""
NAME: Final = "trial.tar.gz"
KEPT: Final = (
    *("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE.md", "llama_cpp"),
    *(
        f"vendor/llama.cpp/{name}"
        for name in (
            *("CMakeLists.txt", "LICENSE", "cmake", "ggml", "include", "src"),
            *("models/templates", "scripts", "tools/mtmd", "vendor"),
        )
    ),
)
"""What of the binding's sources its two libraries need: 5 of 76 MB, compressed."""
BUILD_TOOLS: Final = ("scikit-build-core", "ninja")
TEST_TOOLS: Final = ("pytest", "pytest-trio", "pytest-xdist", "hypothesis", "gguf")
LIBRARY_NEEDS: Final = ("diskcache", "typing-extensions")
"""What the binding itself imports."""
GLIBC: Final = (5, *range(12, 40))
"""Minor versions of glibc 2 that wheels may be for, which pip compares exactly."""


def requirements() -> list[str]:
    """List what a trial installs, but for the binding, which it builds."""
    own = [each for each in wanted("llama") if not each.startswith(PACKAGE)]
    tests = [each for each in wanted("dev") if each.startswith(TEST_TOOLS)]
    return [*own, *tests, *LIBRARY_NEEDS]


def write_archive(work: Workspace, python: str, *, has_cmake: bool) -> Path:
    """Write the archive.

    Args:
        work: where it goes.
        python: version of the other machine's Python, such as ``3.12``.
        has_cmake: whether CMake travels, for a machine without it.

    Raises:
        TrialError: it is larger than ``MAX_BYTES``.
    """
    work.path.mkdir(parents=True, exist_ok=True)
    target = work.path / NAME
    with tempfile.TemporaryDirectory(dir=work.path, prefix=".archive-") as scratch:
        made = Workspace(Path(scratch) / "trial", work.backend)
        made.path.mkdir()
        fill(made, [python, *(["cmake"] if has_cmake else [])])
        with tarfile.open(target, "w:gz") as archive:
            for path in sorted(made.path.iterdir()):
                archive.add(path, path.name)
    size = target.stat().st_size
    if size > MAX_BYTES:
        raise TrialError(f"{target} has {size} bytes, over {MAX_BYTES}")
    say(f"{target} has {size / 2**20:.1f} MiB, of at most {MAX_BYTES >> 20}")
    return target


def fill(made: Workspace, python_and_more: list[str]) -> None:
    """Bring all that the archive holds."""
    repository = made.path / "repository"
    repository.mkdir()
    git = ["git", "-C", str(ROOT), "archive", "HEAD"]
    files = subprocess.run(git, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(repository)], check=True, input=files)
    copy_source(made)
    if made.backend == "vulkan":
        copy_headers(made)
    python, *more = python_and_more
    download_wheels(made, python, more)


def copy_source(made: Workspace) -> None:
    """Copy what is needed of the binding's sources, whose digest pip compares."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = Path(scratch) / "environment"
        python = environment / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        install_pip(python)
        source = download_source(python, PACKAGE, Path(scratch))
        unpack(source, Path(scratch))
        [root] = Path(scratch).glob("llama_cpp_python-*/")
        for name in KEPT:
            path, target = root / name, made.source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, target)


def copy_headers(made: Workspace) -> None:
    """Copy headers of Vulkan that llama.cpp can be built with."""
    command = [sys.executable, "-m", "tools.vulkan_headers"]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    for name in ("vulkan", "vk_video"):
        shutil.copytree(Path(told.stdout.strip()) / name, made.headers / name)


def download_wheels(made: Workspace, python: str, more: list[str]) -> None:
    """Download wheels of another Python, each by its digest."""
    machine = platform.machine()
    platforms = [
        *(f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC),
        *(f"--platform=manylinux{year}_{machine}" for year in (2014, 2010, 1)),
    ]
    pip(
        Path(sys.executable),
        *("download", *CHECKED, *WHEELS_ALONE, "--dest", str(made.wheels)),
        *("--python-version", python, "--implementation", "cp", *platforms),
        *(*BUILD_TOOLS, *more, "pip", *requirements()),
    )
