"""inferd model show: what a model is made of."""

import argparse

import msgspec

from inferd.cli.console import EXIT_OK
from inferd.cli.models.opening import opened_store, size
from inferd.models.store.manifest import Manifest
from inferd.terminal import print_json, print_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("name", metavar="NAME", help="the model's name")
    parser.add_argument(
        "--json", action="store_true", help="print its manifest as JSON"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the manifest of a model."""
    with opened_store() as store:
        manifest = store.model(arguments.name)
    if arguments.json:
        print_json(msgspec.json.encode(manifest))
        return EXIT_OK
    for title, value in _lines(manifest):
        print_line(f"{title:<10} {value}")
    return EXIT_OK


def _lines(manifest: Manifest) -> list[tuple[str, str]]:
    files = [
        (file.role, f"{file.name}, {size(file.n_bytes)}, SHA-256 {file.sha256}")
        for file in manifest.files
    ]
    return [
        ("name", manifest.name),
        ("kind", manifest.kind),
        ("source", manifest.source),
        *([("revision", manifest.revision)] if manifest.revision else []),
        ("licence", manifest.license or "not known"),
        ("since", manifest.created or "not known"),
        ("size", size(manifest.n_bytes)),
        *files,
    ]
