"""inferd model pull: bring a model from a server or a hub."""

import argparse
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from inferd.cli.console import EXIT_OK, CommandError
from inferd.cli.models.opening import opened_store, size
from inferd.cli.models.transfer import TransferProgress
from inferd.cli.numbers import int_range
from inferd.limits.models import PULL_MAX_BYTES
from inferd.models.pull.download import DownloadBounds
from inferd.models.pull.errors import AGAIN, PullError
from inferd.models.pull.process import Downloader
from inferd.models.pull.pull import PullOptions, plan_pull, pull
from inferd.models.pull.source import parse_source
from inferd.models.store.blobs import DigestError
from inferd.models.store.directory import StoreError
from inferd.terminal import print_stderr

_MOST_BYTES: Final = 2**60

_EXAMPLES: Final = """\
sources:
  hf:OWNER/REPO             a model of a Hugging Face repository, Q4_K_M if it has several
  hf:OWNER/REPO:QUANT       of this quantisation, such as Q8_0
  hf:OWNER/REPO/FILE        this file; of a split model, any part
  ...@REVISION              at this branch, tag or commit
  https://HOST/PATH         a file, with --sha256

An interrupted pull goes on where it stopped. $HF_TOKEN is sent to the hub, $HF_ENDPOINT is
another hub, $HTTPS_PROXY a proxy.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "source", metavar="SOURCE", help="where the model is; see below"
    )
    parser.add_argument("--name", metavar="NAME", help="the model's name in the store")
    parser.add_argument(
        "--sha256", metavar="SHA256", help="that the file at an address must have"
    )
    parser.add_argument(
        "--no-projector",
        action="store_true",
        help="without the file that turns images or audio into input of the model",
    )
    add_connection_arguments(parser)
    parser.add_argument(
        "--max-bytes",
        metavar="BYTES",
        type=int_range(1, _MOST_BYTES),
        default=PULL_MAX_BYTES,
        help="of a file whose length the server does not state (default: %(default)s)",
    )
    parser.epilog = _EXAMPLES


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that make connections."""
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        type=Path,
        help="trust these certificate authorities (PEM) instead of the system's",
    )


def run(arguments: argparse.Namespace) -> int:
    """Pull a model into the store."""
    began = time.monotonic()
    try:
        source = parse_source(arguments.source, arguments.sha256)
        options = PullOptions(
            name=arguments.name,
            with_projector=not arguments.no_projector,
            token=hub_token(os.environ),
            bounds=DownloadBounds(max_bytes=arguments.max_bytes),
        )
        with opened_store(makes=True) as store, started(arguments) as downloader:
            plan = plan_pull(store, downloader, source, options)
            with _hints(), TransferProgress() as progress:
                manifest = pull(
                    store, downloader, plan, options.bounds, progress.of_file
                )
    except PullError as error:
        raise CommandError(error.text, error.hint) from error
    print_stderr(
        f"{manifest.name}: {size(manifest.n_bytes)} in {time.monotonic() - began:.1f} s"
    )
    return EXIT_OK


@contextmanager
def _hints() -> Iterator[None]:
    """Say what to type where the store refuses a file."""
    try:
        yield
    except DigestError as error:
        raise CommandError(
            str(error),
            "compare the SHA-256 with the one that its source states; inferd model prune "
            "removes the file",
        ) from error
    except StoreError as error:
        raise CommandError(
            str(error), f"once that is over, {AGAIN}; inferd model prune frees space"
        ) from error


@contextmanager
def started(arguments: argparse.Namespace) -> Iterator[Downloader]:
    """Run a downloader while inside; say what its sandbox lacks.

    Raises:
        CommandError: the file of the certificate authorities cannot be read.
        PullError: it did not start.
    """
    ca_file: Path | None = arguments.ca_file
    if ca_file is not None:
        try:
            ca_file.open("rb").close()
        except OSError as error:
            raise CommandError(f"{ca_file}: {error.strerror}") from error
    chosen = None if ca_file is None else str(ca_file.absolute())
    with Downloader(os.environ, chosen) as downloader:
        for missing in downloader.missing:
            print_stderr(f"note: the downloader's sandbox is weaker: {missing}")
        yield downloader


def hub_token(environ: Mapping[str, str]) -> str:
    """Return the user's token for the hub, where its own programs look for it."""
    if token := environ.get("HF_TOKEN", "").strip():
        return token
    cache = environ.get("XDG_CACHE_HOME") or str(
        Path(environ.get("HOME", "/")) / ".cache"
    )
    home = environ.get("HF_HOME") or str(Path(cache) / "huggingface")
    path = Path(environ.get("HF_TOKEN_PATH") or Path(home) / "token")
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
