"""``inferd model``: one module per command, and the option that all of them have."""

import argparse
import os
from collections.abc import Sequence

from inferd.paths import SYSTEM_MODELS


def add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands."""
    parser.add_argument(
        "--system",
        action=_SystemStore,
        nargs=0,
        help=f"use the store of the machine's service, {SYSTEM_MODELS}, as root",
    )


class _SystemStore(argparse.Action):
    """Lets the command use the machine's store, with files that the service may read."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002  # argparse's signature
        namespace: argparse.Namespace,  # noqa: ARG002
        values: str | Sequence[object] | None,  # noqa: ARG002
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        os.environ["INFERD_MODELS"] = str(SYSTEM_MODELS)
        os.umask(0o022)
