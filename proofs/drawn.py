"""Requests that schemathesis draws from a description and sends."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from msgspec import Struct

from tools.programs import program_environ, program_python

RUN_S: Final = 900.0
TAIL_CHARS: Final = 600
"""Of what the program wrote, if there is no report."""


class Cases(Struct):
    """Requests that were sent."""

    generated: int


class Failure(Struct):
    """Answers that break one rule."""

    title: str
    operations: list[str]


class Operations(Struct):
    """Routes of the description."""

    selected: int
    tested: int


class Report(Struct):
    """What schemathesis reports, as far as it is read."""

    schemathesis_version: str
    operations: Operations
    test_cases: Cases
    failures: list[Failure]


def send_drawn(
    location: str, options: Sequence[str], *, n_examples: int, seed: int
) -> Report:
    """Run schemathesis.

    Args:
        location: of the description: a URL, or a path.
        options: of its command line.
        n_examples: of each operation.
        seed: of all that is drawn.

    Raises:
        AssertionError: it has reported nothing.
    """
    program = program_python("frameworks").with_name("st")
    with TemporaryDirectory(prefix="routes-") as scratch:
        path = Path(scratch, "report.json")
        done = subprocess.run(
            [
                *(str(program), "run", location, *options),
                *("--max-examples", str(n_examples), "--seed", str(seed)),
                *("--warnings", "off", "--report-json-path", str(path)),
            ],
            cwd=scratch,
            env=program_environ(),
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        if not path.exists():
            words = (done.stdout + done.stderr)[-TAIL_CHARS:]
            raise AssertionError(f"no report: {words}")
        return msgspec.json.decode(path.read_bytes(), type=Report)
