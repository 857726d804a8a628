"""Build llama.cpp for an accelerator, and an environment of Python with it.

The same flags as `make setup` has. CMake's directory is kept, so ninja goes on where a call was
cut off: it loses what it was compiling then, and no more.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from itertools import takewhile
from pathlib import Path
from typing import Final

from tools.accelerator_trial.archive import BUILD_TOOLS, requirements
from tools.accelerator_trial.workspace import (
    CutOffError,
    Deadline,
    TrialError,
    Workspace,
    run_until,
    say,
)
from tools.packages import PIP, ROOT, install, install_file
from tools.wheel import BASE_ARGS, PACKAGE, TRIM_ARG

FLAGS: Final = {
    "cuda": ("-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=native"),
    "vulkan": ("-DGGML_VULKAN=ON",),
}
NVCC: Final = Path("/usr/local/cuda/bin/nvcc")
"""Where CUDA's own installer puts its compiler."""
STEP: Final = re.compile(r"^\s*\[(\d+)/(\d+)\]", re.MULTILINE)
MAX_REASON_LINES: Final = 12


def build(work: Workspace, deadline: Deadline) -> None:
    """Build the wheel unless it is there, and install it with all that runs with it.

    Raises:
        CutOffError: the time is over.
        TrialError: llama.cpp cannot be configured or compiled here.
    """
    use_wheels(work)
    if work.built_wheel is None:
        compile_wheel(work, deadline)
    make_environment(work)
    work.add_to_report("build", {"flags": list(flags(work)), "finished": True})
    say(f"built; the environment is {work.environment}")


def flags(work: Workspace) -> tuple[str, ...]:
    """List what CMake is told."""
    headers = work.headers if work.backend == "vulkan" else None
    include = (
        (f"-DVulkan_INCLUDE_DIR={headers}",) if headers and headers.is_dir() else ()
    )
    return (*BASE_ARGS, *FLAGS[work.backend], *include, TRIM_ARG)


def use_wheels(work: Workspace) -> None:
    """Have pip take the wheels that travelled, and nothing else.

    Raises:
        TrialError: there are none.
    """
    if not work.wheels.is_dir():
        raise TrialError(
            f"{work.wheels} is missing: unpack trial.tar.gz in {work.path}"
        )
    os.environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(work.wheels)}
    os.environ.pop("PIP_EXTRA_INDEX_URL", None)


def make_python(work: Workspace, environment: Path) -> Path:
    """Create an environment with the pinned pip, also where `ensurepip` is missing."""
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, symlinks=True)
    [pip] = work.wheels.glob("pip-*.whl")
    command = [str(python), str(pip / "pip"), "install", "--quiet", str(pip)]
    subprocess.run(command, check=True)
    return python


def compile_wheel(work: Workspace, deadline: Deadline) -> None:
    """Compile the binding's libraries, or go on with that."""
    python = make_python(work, work.build_tools)
    carried = ["cmake"] if any(work.wheels.glob("cmake-*.whl")) else []
    install(python, *BUILD_TOOLS, *carried)
    environ = {
        **os.environ,
        "CMAKE_ARGS": shlex.join(flags(work)),
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    if work.backend == "cuda" and not shutil.which("nvcc") and NVCC.exists():
        environ["CUDACXX"] = str(NVCC)
    if not shutil.which("cmake", path=environ["PATH"]):
        raise TrialError("no cmake here: install it, or write the archive --with-cmake")
    log = work.path / f"build-{work.backend}.log"
    status = run_until(wheel_command(work, python), deadline, log, environ)
    text = log.read_text(errors="replace")
    if status is None:
        raise CutOffError(f"compiling: {progress(text)}")
    if status:
        raise TrialError(f"{reason(text)}\nthe whole log is {log}")


def wheel_command(work: Workspace, python: Path) -> list[str]:
    """Write the command that builds, in a directory that is kept."""
    settings = {"build-dir": str(work.build), "build.targets": "llama;mtmd"}
    return [
        *(str(python), *PIP, "wheel", "--verbose", "--no-deps", "--no-cache-dir"),
        "--no-build-isolation",  # another path of CMake would begin from scratch
        *(f"--config-settings={key}={value}" for key, value in settings.items()),
        *("--wheel-dir", str(work.built), str(work.source)),
    ]


def progress(log: str) -> str:
    """Say how far ninja is."""
    found = STEP.findall(log)
    return f"{found[-1][0]} of {found[-1][1]} steps" if found else "nothing yet"


def reason(log: str) -> str:
    """Give what is wrong, as CMake, or else the compiler, says it."""
    lines = [each.strip() for each in log.splitlines()]
    found = [each for each in lines if "error" in each.lower()]
    for number, line in enumerate(lines):
        if line.startswith("CMake Error"):
            found = list(
                takewhile(lambda each: not each.startswith("--"), lines[number:])
            )
            break
    told = [each for each in found or lines if each][:MAX_REASON_LINES]
    return "\n".join(["llama.cpp was not built:", *told])


def make_environment(work: Workspace) -> None:
    """Install the wheel and what tests and figures need."""
    wheel = work.built_wheel
    if wheel is None:
        raise TrialError("there is no wheel yet: --step build")
    python = make_python(work, work.environment)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    install_file(python, PACKAGE, wheel, digest)
    install(python, *requirements())
    [packages] = work.environment.glob("lib/python*/site-packages")
    (packages / "inferd-trial.pth").write_text(f"{ROOT}\n")


def enter_environment(work: Workspace) -> None:
    """Go on in the built environment, if this is another Python.

    Raises:
        TrialError: it has not been built.
    """
    if Path(sys.prefix).resolve() == work.environment.resolve():
        return
    if not work.python.exists() or work.built_wheel is None:
        raise TrialError(f"{work.backend} is not built yet: --step build")
    command = [str(work.python), "-m", "tools.accelerator_trial", *sys.argv[1:]]
    os.execv(command[0], command)  # noqa: S606  # the same program, another Python
