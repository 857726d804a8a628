"""This daemon, llama.cpp alone and llama.cpp's server side by side: one report.

make bench                                  # all of it: bench/report.json and .md
python -m bench --only single_stream        # one figure of each model
python -m bench --model mine=FILE.gguf      # another model, by itself
python -m bench --quick --sides inferd      # does it run?
"""

import argparse
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.lab import QUICK, SIDES, Lab, ModelFile, Sizes
from bench.machine import flags, machine, versions
from bench.measures import CHAT, EMBEDDING, KEYS, SPOKEN, WITHOUT_MODEL
from bench.measures.growth import AXES, growth
from bench.models import (
    DEFAULT,
    EMBEDDING as EMBEDDING_MODEL,
    SPEECH as SPEECH_MODELS,
    NoModelError,
    model_file,
)
from bench.peers.build import tools_directory
from bench.peers.server_py import UnavailableError, packages
from bench.peers.whisper_cli import whisper_cli
from bench.report import write_report
from bench.run import Results, Rounds, say

FORMAT: Final = 1
"""Of ``report.json``; a change of meaning raises it."""
BUILT: Final = frozenset({"peer", "raw"})
"""Sides that are llama.cpp's own tools."""
HERE: Final = Path(__file__).parent


def main() -> int:
    """Measure all that is asked for; write the report as it grows."""
    # As Ctrl-C: whoever serves is ended, and no other measure begins.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = parsed()
    rounds = rounds_of(arguments)
    began_at = time.monotonic()
    sides, unavailable = sides_of(frozenset(arguments.sides))
    report = head(arguments, rounds, sides)
    report["unavailable"] += unavailable
    results = Results(keep=partial(keep, report, arguments.output))
    report |= {"measures": results.measures, "growth": results.growth}
    measure_all(arguments, rounds, report, results)
    report["seconds"] = round(time.monotonic() - began_at)
    write_report(report, arguments.output)
    say(f"{report['seconds'] / 60:.1f} minutes; {arguments.output / 'report.md'}")
    for line in (*report["unavailable"], *results.failed):
        say(f"not measured: {line}")
    return 1 if results.failed else 0


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", action="append", metavar="[NAME=]FILE")
    parser.add_argument("--family", action="append", default=[], metavar="NAME=FAMILY")
    parser.add_argument(
        "--only", action="append", default=[], choices=(*KEYS, *AXES), metavar="KEY"
    )
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--growth-rounds", type=int)
    parser.add_argument("--tries", type=int, help="at a quiet moment, for each round")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--gpu-layers", type=int, default=0, help="-1 for all")
    parser.add_argument("--quick", action="store_true", help="to see that it runs")
    parser.add_argument("--output", type=Path, default=HERE, metavar="DIRECTORY")
    return parser.parse_args()


def rounds_of(arguments: argparse.Namespace) -> Rounds:
    """Decide how often to measure."""
    quick = arguments.quick
    return Rounds(
        n_rounds=arguments.rounds or (1 if quick else 5),
        tries=arguments.tries or (1 if quick else 2),
        growth_rounds=1 if arguments.growth_rounds is None else arguments.growth_rounds,
        only=frozenset(arguments.only),
    )


def head(
    arguments: argparse.Namespace, rounds: Rounds, sides: frozenset[str]
) -> dict[str, Any]:
    """Give what is known before anything is measured."""
    return {
        "format": FORMAT,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": {
            "rounds": rounds.n_rounds,
            "growth_rounds": rounds.growth_rounds,
            "tries": rounds.tries,
            "threads": arguments.threads,
            "gpu_layers": arguments.gpu_layers,
            "sides": sorted(sides),
            "quick": arguments.quick,
        },
        "machine": machine(),
        "versions": versions(with_peers=bool(BUILT & sides)),
        "build_flags": flags(),
        "unavailable": [],
        "models": {},
        "commands": [],
    }


def keep(report: dict[str, Any], directory: Path) -> None:
    """Write what there is, so that it outlives a run that is cut short."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.json").write_text(json.dumps(report, indent=1) + "\n")


def measure_all(
    arguments: argparse.Namespace,
    rounds: Rounds,
    report: dict[str, Any],
    results: Results,
) -> None:
    """Measure every model; the report learns what was not to be had, and why."""
    families = dict(each.split("=", 1) for each in arguments.family)
    commands: dict[str, None] = {}
    lab_of = partial(
        Lab,
        sides=frozenset(report["settings"]["sides"]),
        n_threads=arguments.threads,
        n_gpu_layers=arguments.gpu_layers,
        sizes=QUICK if arguments.quick else Sizes(),
        is_patient=not arguments.quick,
        commands=commands,
    )
    for named in (*(arguments.model or DEFAULT), EMBEDDING_MODEL, *SPEECH_MODELS):
        try:
            model = model_file(named, families.get(named.partition("=")[0]))
        except NoModelError as error:
            report["unavailable"].append(f"{named}: {error}")
            continue
        report["models"][model.name] = described(model)
        lab = lab_of(model)
        measure_model(lab, rounds, results, named=named)
        report["commands"] = [*commands]
        report["unavailable"] += [
            f"{side}, {model.name}: {why}" for side, why in lab.absent.items()
        ]


def measure_model(lab: Lab, rounds: Rounds, results: Results, *, named: str) -> None:
    """Measure one model."""
    if named in SPEECH_MODELS:
        results.add(lab, SPOKEN, rounds, model=lab.model.name)
        return
    if named == EMBEDDING_MODEL:
        results.add(lab, EMBEDDING, rounds, model=lab.model.name)
        results.add(lab, WITHOUT_MODEL, rounds, model="none")
        return
    results.add(lab, CHAT, rounds, model=lab.model.name)
    results.add_growth(lab, growth(lab), rounds)


def sides_of(wanted: frozenset[str]) -> tuple[frozenset[str], list[str]]:
    """Give the sides that can be had, and why others cannot."""
    missing: dict[str, str] = {}
    if wanted & BUILT:
        try:
            tools_directory()
        except SystemExit as error:
            missing |= {side: str(error) for side in sorted(wanted & BUILT)}
    if "whisper_cli" in wanted:
        try:
            whisper_cli()
        except SystemExit as error:
            missing["whisper_cli"] = str(error)
    if "server_py" in wanted:
        try:
            say(f"server.py runs on {packages()}")
        except (UnavailableError, SystemExit) as error:
            missing["server_py"] = str(error)
    return wanted - missing.keys(), [f"{side}: {why}" for side, why in missing.items()]


def described(model: ModelFile) -> dict[str, Any]:
    """Give the facts of a model."""
    return {
        "file": model.path.name,
        "bytes": model.path.stat().st_size,
        "chat_template": model.family,
    }


if __name__ == "__main__":
    sys.exit(main())
