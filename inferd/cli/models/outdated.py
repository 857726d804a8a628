"""inferd model outdated: which models have newer files at their source."""

import argparse
import os

import msgspec

from inferd.cli.console import EXIT_NOT_READY, EXIT_OK, CommandError
from inferd.cli.models.opening import opened_store
from inferd.cli.models.pull import add_connection_arguments, hub_token, started
from inferd.models.pull.errors import PullError
from inferd.models.pull.outdated import Age, Comparison, compare
from inferd.models.store.manifest import Manifest
from inferd.terminal import print_json, print_line, print_stderr

_SHOWN_CHARS = 12
"""Characters of a commit that are shown; as many tell commits apart."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="a model; default: all"
    )
    parser.add_argument(
        "--json", action="store_true", help="print a JSON line for each"
    )
    add_connection_arguments(parser)
    parser.epilog = (
        "Exit code 1 if a model is outdated, or its source could not be asked. Models "
        "of a file, an address or a commit cannot be outdated. Nothing is downloaded."
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare models with their sources."""
    token = hub_token(os.environ)
    ages: set[Age] = set()
    try:
        with opened_store() as store, started(arguments) as downloader:
            for name in arguments.names or store.names():
                manifest = store.model(name)
                comparison = compare(manifest, downloader, token)
                ages.add(comparison.age)
                _print(manifest, comparison, as_json=arguments.json)
    except PullError as error:
        raise CommandError(error.text, error.hint) from error
    return EXIT_OK if ages <= {Age.CURRENT, Age.FIXED} else EXIT_NOT_READY


def _print(manifest: Manifest, comparison: Comparison, *, as_json: bool) -> None:
    if as_json:
        entry = {"name": manifest.name, "has": manifest.revision}
        print_json(msgspec.json.encode(entry | comparison._asdict()))
        return
    revisions = ""
    if comparison.age is Age.OUTDATED:
        has, now = manifest.revision[:_SHOWN_CHARS], comparison.revision[:_SHOWN_CHARS]
        revisions = f"  {has} -> {now}"
    print_line(f"{manifest.name}  {comparison.age}{revisions}")
    if comparison.age is Age.UNKNOWN:
        print_stderr(f"error: {manifest.name}: {comparison.reason}")
    if comparison.age is Age.OUTDATED:
        words = f"inferd model pull {manifest.source} --name {manifest.name}"
        print_stderr(f"hint: {words}")
