"""Run the accelerator tests, one process each, so that a call that is cut off loses one."""

import os
import subprocess
from typing import Final

from tools.accelerator_trial.workspace import (
    CutOffError,
    Deadline,
    TrialError,
    Workspace,
    run_until,
    say,
)
from tools.packages import ROOT

FOLDER: Final = "tests/accelerator"
PYTEST: Final = ("-m", "pytest", "-p", "no:cacheprovider", "-m")
TESTS: Final = "accelerator and not systemd"
"""The others install the service, which takes a registry."""
LAST_LINES: Final = 20
"""Lines of a failure that the report keeps."""


def test(work: Workspace, deadline: Deadline) -> None:
    """Run the tests that have not passed yet.

    Raises:
        CutOffError: the time is over.
        TrialError: no test can be collected, or one failed.
    """
    outcomes: dict[str, str] = work.part("tests") or {}
    for name in collected(work):
        if outcomes.get(name) == "passed":
            continue
        deadline.check(f"testing: {passed(outcomes)} passed so far")
        outcomes[name] = outcome(work, name, deadline)
        work.add_to_report("tests", outcomes)
        say(f"{name}: {outcomes[name].splitlines()[0]}")
    failed = [name for name, each in outcomes.items() if each != "passed"]
    if failed:
        raise TrialError(f"{len(failed)} tests failed: {', '.join(failed)}")


def passed(outcomes: dict[str, str]) -> int:
    """Count the tests that passed."""
    return sum(each == "passed" for each in outcomes.values())


def collected(work: Workspace) -> list[str]:
    """List the tests.

    Raises:
        TrialError: pytest collects none.
    """
    command = [str(work.python), *PYTEST, TESTS, "--collect-only", "-q", FOLDER]
    told = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT
    )
    names = [line for line in told.stdout.splitlines() if "::" in line]
    if told.returncode or not names:
        raise TrialError(f"no tests are collected:\n{told.stdout}{told.stderr}")
    return names


def outcome(work: Workspace, name: str, deadline: Deadline) -> str:
    """Run a test; return ``passed``, or ``failed`` with the last lines it wrote.

    Raises:
        CutOffError: the time was over in its midst.
    """
    log = work.path / "test.log"
    command = [str(work.python), *PYTEST, TESTS, name]
    status = run_until(command, deadline, log, os.environ, ROOT)
    if status is None:
        raise CutOffError(f"testing: cut off in {name}")
    if status == 0:
        return "passed"
    return "\n".join(["failed", *log.read_text().splitlines()[-LAST_LINES:]])
