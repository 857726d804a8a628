"""Requests that follow from the description of the routes, and others that contradict it."""

import subprocess
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from msgspec import Struct

from tests.daemon.bridge import BridgeProcess, bridge_to
from tests.daemon.configuration import mock
from tests.daemon.fixtures import daemons
from tools.programs import program_environ, program_python
from torture.outcome import Context

KEY: Final = "described-routes"
NAME: Final = "Requests drawn from /openapi.json, and from what it forbids"
EXCLUDED: Final = "positive_data_acceptance"
"""The check that what fits a schema is accepted: fields may contradict each other, and no
schema says so."""
LEFT_OUT: Final = "^/admin/"
"""Paths that answer 501 where no helper of the bridge runs."""
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


def run(context: Context) -> None:
    """Send requests that the description allows, and some that it does not."""
    n_examples = context.pick(short=3, full=100)
    phases = context.pick(short="fuzzing", full="coverage,fuzzing")
    with daemons() as make:
        daemon = make(
            {
                "backend": [mock(tokens=["Hel", "lo"])],
                "admission": {"max_queued": 100},
            }
        ).start()
        with bridge_to(daemon) as bridge:
            report = _send(bridge, n_examples, phases, context.seed)
            told = bridge.logged("http_request.done")
            bugs = bridge.logged("http_request.failed")
    answers = Counter(str(each.get("status")) for each in told)
    for failure in report.failures:
        where = ", ".join(failure.operations)
        context.problems.append(f"{failure.title}: {where}")
    untested = report.operations.selected - report.operations.tested
    context.require(not untested, f"{untested} routes were not tested")
    context.require(not bugs, f"bugs: {bugs[:1]}")
    context.counts |= {
        "routes": report.operations.tested,
        "requests": report.test_cases.generated,
        "failures": len(report.failures),
        **{f"status_{status}": number for status, number in sorted(answers.items())},
    }
    context.notes.append(
        f"schemathesis {report.schemathesis_version}, all checks but `{EXCLUDED}`: "
        "fields may contradict each other, and no schema says so; "
        f"routes of `{LEFT_OUT}` are left out, since they answer 501 without a helper"
    )


def _send(bridge: BridgeProcess, n_examples: int, phases: str, seed: int) -> Report:
    """Run schemathesis.

    Raises:
        AssertionError: it has reported nothing.
    """
    program = program_python("frameworks").with_name("st")
    with TemporaryDirectory(prefix="routes-") as scratch:
        path = Path(scratch, "report.json")
        done = subprocess.run(
            [
                *(str(program), "run", f"{bridge.address}/openapi.json"),
                *("--max-examples", str(n_examples), "--seed", str(seed)),
                *("--phases", phases, "--exclude-checks", EXCLUDED),
                *("--exclude-path-regex", LEFT_OUT),
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
