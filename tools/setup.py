"""Make `.venv` ready: build llama.cpp once, install, fetch the embedded models.

Run by `make setup` with any Python of 3.11 or later; it uses the standard library alone.
Long steps are announced. A second run finds everything in the cache and does nothing,
unless what is installed is no longer as it was.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from inferd.models.embedded import EMBEDDED_MODELS
from inferd.paths import models_directory
from inferd.trusted_path import UntrustedError, open_directory
from tools.packages import (
    BUILDING,
    CONSTRAINTS,
    NAME,
    ROOT,
    damage,
    install,
    install_file,
    install_pip,
    pip,
    wanted,
)
from tools.wheel import CMAKE_ARGS, PACKAGE, TRIM, VARIANTS, cache, llama_wheel, say

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "inferd-setup"
EXTRAS = (
    "llama",
    "whisper",
    "media",
    "models",
    "remote",
    "bridge",
    "chat",
    "tools",
    "postgresql",
    "fleet",
    "docs",
    "dev",
)
NATIVE = (PACKAGE, "pywhispercpp")
"""Packages whose libraries are compared with what was installed, some 60 MB."""
FETCHED = ("schemas", "speech")
"""Folders of the cache, which nobody else may write to."""
PLACES = VENV / "inferd-places"
"""File with the variables that name the store and the cache, for tests with another `HOME`."""
CODE = tuple(ROOT / "tools" / name for name in ("setup.py", "packages.py", "wheel.py"))


def main() -> int:
    """Run the missing steps."""
    stamp = fingerprint()
    if STAMP.is_file() and STAMP.read_text() == stamp:
        if not (fault := damage_here()):
            return fetch()
        say(f"{fault}: making .venv anew")
        shutil.rmtree(VENV)
    make_venv()
    wheel = llama_wheel(PYTHON)
    say("installing inferd and its tools into .venv")
    install_pip(PYTHON)
    install_file(PYTHON, PACKAGE, wheel.path, wheel.sha256)
    install(PYTHON, *wanted(*EXTRAS))
    pip(PYTHON, "install", "--no-deps", *BUILDING, "--editable", str(ROOT))
    STAMP.write_text(stamp)
    return fetch()


def fingerprint() -> str:
    """Return a key of everything that an environment depends on."""
    digest = hashlib.sha256()
    for path in (ROOT / "pyproject.toml", CONSTRAINTS, TRIM, VARIANTS, *CODE):
        digest.update(path.read_bytes())
    digest.update(f"{sys.version}{ROOT}{CMAKE_ARGS}".encode())
    return digest.hexdigest()


def damage_here() -> str:
    """Describe what is broken in `.venv`, where pip would find all it wants; or nothing."""
    names = [match[0] for each in wanted(*EXTRAS) if (match := NAME.match(each))]
    site = sysconfig.get_path("purelib", "venv", {"base": str(VENV)})
    return damage(Path(site), names, hashed=NATIVE)


def make_venv() -> None:
    """Create `.venv` unless there is one."""
    if PYTHON.exists():
        return
    say(f"creating .venv with Python {platform.python_version()}")
    venv.create(VENV, with_pip=True)
    install_pip(PYTHON)


def fetch() -> int:
    """Pull the embedded models, and fetch the reference data of tests."""
    try:
        for name in FETCHED:
            os.close(open_directory(cache() / name, makes=True))
    except (UntrustedError, OSError) as error:
        say(f"error: {error}")
        return 2
    models = [model.reference for model in EMBEDDED_MODELS.values()]
    for words in (
        ("inferd", "model", "pull", "--if-missing", *models),
        ("tools.schema_suite",),
        ("tools.spoken_clip",),
    ):
        result = subprocess.run([str(PYTHON), "-m", *words], check=False, cwd=ROOT)
        if result.returncode:
            return result.returncode
    places = {"INFERD_MODELS": models_directory(), "INFERD_CACHE_DIR": cache()}
    lines = [f"{name}={path.absolute()}\n" for name, path in places.items()]
    PLACES.write_text("".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
