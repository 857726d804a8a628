"""Replay the vectors of the protocol against any running daemon.

Prints a line for each vector: ok, FAIL with what was expected and what came, or skip
with the reason. The daemon has to be configured as the vectors need it: --profile says
as which of vectors/profiles it is; without it, those that need one are skipped.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from protocol.player import (
    MismatchError,
    UnreachableError,
    play,
    settle,
)
from protocol.vector import (
    LEAVES,
    Vector,
    VectorError,
    all_vectors,
    name_of,
    profiles,
    read_vector,
)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_UNUSABLE: Final = 2

TRACED_BYTES: Final = 200
"""Bytes of a line that -v shows."""

Play = Callable[[Vector], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay; give 0 if all is as it should be, 1 if not, 2 if nothing can be said."""
    options = _parser().parse_args(arguments)
    directory: Path = options.directory
    trace = _print_traffic if options.verbose else _nothing

    def play_here(vector: Vector) -> None:
        settle(directory, timeout_s=options.timeout_s)
        play(vector, directory, timeout_s=options.timeout_s, trace=trace)

    try:
        vectors = {
            name_of(path): read_vector(path) for path in options.files or all_vectors()
        }
        settle(directory, timeout_s=options.timeout_s)
        counts: Counter[str] = Counter()
        for name, vector in vectors.items():
            if options.only in (None, vector.surface):
                reason = _reason_to_skip(vector, directory, options.profile)
                counts[_replay(name, vector, play_here, reason)] += 1
    except (VectorError, UnreachableError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_UNUSABLE
    print(f"{counts['ok']} ok, {counts['FAIL']} failed, {counts['skip']} skipped")
    if counts["FAIL"]:
        return EXIT_FAILED
    return EXIT_OK if counts["ok"] else EXIT_UNUSABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m protocol.replay", description=__doc__
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument(
        "--directory", type=Path, required=True, help="where the daemon's sockets are"
    )
    parser.add_argument(
        "--profile", choices=profiles(), help="what the daemon is configured as"
    )
    parser.add_argument("--only", choices=LEAVES, help="replay one surface alone")
    parser.add_argument(
        "--timeout-s",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="longest a vector may take (%(default)s)",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show the frames")
    return parser


def _reason_to_skip(vector: Vector, directory: Path, profile: str | None) -> str | None:
    if vector.profile not in (None, profile):
        return f"needs the profile {vector.profile}"
    leaves = [LEAVES[surface] for surface in sorted(vector.surfaces)]
    missing = [leaf for leaf in leaves if not (directory / leaf).exists()]
    return f"there is no {missing[0]}" if missing else None


def _replay(name: str, vector: Vector, play_here: Play, reason: str | None) -> str:
    """Replay one vector and print what became of it; give the first word of that."""
    if reason:
        print(f"skip {name}: {reason}")
        return "skip"
    try:
        play_here(vector)
    except MismatchError as error:
        print(f"FAIL {name}: {error}")
        return "FAIL"
    print(f"ok   {name}")
    return "ok"


def _print_traffic(connection: str, direction: str, data: bytes) -> None:
    text = data[:TRACED_BYTES].decode(errors="backslashreplace").rstrip("\n")
    cut = "…" if len(data) > TRACED_BYTES else ""
    print(f"     {connection} {direction} {text}{cut}")


def _nothing(connection: str, direction: str, data: bytes) -> None:
    pass


if __name__ == "__main__":
    sys.exit(main())
