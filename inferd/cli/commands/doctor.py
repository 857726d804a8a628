"""inferd doctor: check the machine and the configuration, and hint at repairs."""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from inferd import __version__
from inferd.cli.console import EXIT_NOT_READY, EXIT_OK, CommandError
from inferd.config.kinds.registry import KINDS, KindRegistry
from inferd.doctor.catalogue import all_checks, services_checks
from inferd.doctor.check import Check, Finding, Verdict, run_checks
from inferd.doctor.service import environment_of
from inferd.service.units import (
    SYSTEM,
    SystemdService,
    UnknownInstanceError,
    instance,
    unit_state,
)
from inferd.terminal import json_safe, print_json, print_line

MARKS: Final = {
    Verdict.OK: "[ ok ]",
    Verdict.WARNING: "[warn]",
    Verdict.FAILED: "[FAIL]",
    Verdict.SKIPPED: "[skip]",
}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The output of ``inferd doctor --json``."""

    version: str
    passed: bool
    findings: list[Finding]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the TOML configuration to check"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--remote",
        action="store_true",
        help="connect to remote engines, with their keys, and ask for their models",
    )
    target = parser.add_mutually_exclusive_group()
    target.add_argument(
        "--system",
        action="store_true",
        help="check the machine's service, with its configuration and directories",
    )
    target.add_argument(
        "--instance", metavar="NAME", help="check the instance inferd@NAME"
    )
    parser.epilog = (
        "Without --system and --instance it checks this user's daemon, and says of each "
        "service of the machine whether it runs. Nothing is changed or started."
    )


def run(arguments: argparse.Namespace, kinds: KindRegistry = KINDS) -> int:
    """Print a line for each check as soon as it is done, or one JSON report."""
    service = _service(arguments)
    with ExitStack() as stack:
        if service is not None:
            stack.enter_context(environment_of(service, unit_state(service)))
        checks = [
            *all_checks(arguments.config, kinds, service, asks_remotes=arguments.remote)
        ]
        if service is None and arguments.config is None:
            checks += services_checks()
        return _report(checks, as_json=arguments.json)


def _service(arguments: argparse.Namespace) -> SystemdService | None:
    """Return the service to check.

    Raises:
        CommandError: no instance can have the name.
    """
    if arguments.system:
        return SYSTEM
    if arguments.instance is None:
        return None
    try:
        return instance(arguments.instance)
    except UnknownInstanceError as error:
        raise CommandError(
            str(error), hint="systemctl list-units 'inferd@*'"
        ) from error


def _report(checks: Sequence[Check], *, as_json: bool) -> int:
    findings: list[Finding] = []
    for finding in run_checks(checks):
        findings.append(finding)
        if not as_json:
            print_line(f"{MARKS[finding.verdict]} {finding.check}: {finding.detail}")
            if finding.hint:
                print_line(f"       hint: {finding.hint}")
    passed = all(finding.verdict is not Verdict.FAILED for finding in findings)
    if as_json:
        plain = [_json_safe(finding) for finding in findings]
        report = Report(version=__version__, passed=passed, findings=plain)
        print_json(msgspec.json.encode(report))
    return EXIT_OK if passed else EXIT_NOT_READY


def _json_safe(finding: Finding) -> Finding:
    """Escape the bytes of paths that are not UTF-8."""
    return msgspec.structs.replace(
        finding,
        detail=json_safe(finding.detail),
        hint=json_safe(finding.hint),
    )
