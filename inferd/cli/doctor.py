"""inferd doctor: what is wrong with this machine, and what to type."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final

import msgspec

from inferd import __version__
from inferd.cli.configuration import load_config, located, socket_directory
from inferd.cli.console import EXIT_NOT_READY, EXIT_OK, CommandError
from inferd.config import BackendSettings, Config, MockSettings
from inferd.doctor.box import check_box
from inferd.doctor.check import Check, Finding, Verdict, examine, failed, ok
from inferd.doctor.engine import check_model, check_worker
from inferd.doctor.machine import check_cpu, check_packages, check_python
from inferd.doctor.memory import Forecast, Weighty, check_memory, forecast
from inferd.doctor.runtime import (
    HELD,
    check_admin,
    check_directory,
    check_lock,
    check_sockets,
)
from inferd.server.sizes import memory_budget
from inferd.terminal import json_line, line, text_of_json

CHECKS_OF_BACKENDS: Final = ("model", "memory", "worker")

MARKS: Final = {
    Verdict.OK: "[ ok ]",
    Verdict.WARNING: "[warn]",
    Verdict.FAILED: "[FAIL]",
    Verdict.SKIPPED: "[skip]",
}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What ``inferd doctor --json`` prints."""

    version: str
    passed: bool
    findings: list[Finding]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a TOML configuration"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each check as it is made, or one report."""
    findings: list[Finding] = []
    for finding in examine(list(all_checks(arguments.config))):
        findings.append(finding)
        if not arguments.json:
            line(f"{MARKS[finding.verdict]} {finding.check}: {finding.detail}")
            if finding.hint:
                line(f"       hint: {finding.hint}")
    passed = all(finding.verdict is not Verdict.FAILED for finding in findings)
    if arguments.json:
        plain = [_plain(finding) for finding in findings]
        report = Report(version=__version__, passed=passed, findings=plain)
        json_line(msgspec.json.encode(report))
    return EXIT_OK if passed else EXIT_NOT_READY


def _plain(finding: Finding) -> Finding:
    """Write paths as JSON can hold them."""
    return msgspec.structs.replace(
        finding,
        detail=text_of_json(finding.detail),
        hint=text_of_json(finding.hint),
    )


def all_checks(file: Path | None) -> Iterator[Check]:
    """List every check; those of backends only where the configuration can be read."""
    yield Check("python", check_python)
    yield Check("packages", check_packages)
    yield Check("cpu", check_cpu)
    config, finding = _configuration(file)
    yield Check("config", lambda: finding)
    if config is None:
        return
    yield Check("box", partial(check_box, config.limits))
    directory = socket_directory(config)
    known = _lazy_forecast(config)
    for settings in config.backend:
        yield from _checks_of(settings, config, known)
    yield Check("runtime-directory", partial(check_directory, directory))
    yield Check("lock", partial(check_lock, directory), ["runtime-directory"])
    yield Check(
        "sockets",
        partial(
            check_sockets, directory, admin_is_shared=config.access.admin is not None
        ),
        ["runtime-directory"],
    )
    yield Check("admin", partial(check_admin, directory), ["runtime-directory"])


def _configuration(file: Path | None) -> tuple[Config | None, Finding]:
    try:
        config = load_config(file)
    except CommandError as error:
        return None, failed(error.text)
    names = ", ".join(backend.name for backend in config.backend)
    return config, ok(f"backends: {names}")


def _lazy_forecast(config: Config) -> Callable[[], Forecast]:
    """Find what all backends would take, once it is asked for."""

    def models() -> Iterator[Weighty]:
        for settings in config.backend:
            with suppress(CommandError):  # a finding of its own
                found = located(settings)
                if not isinstance(found, MockSettings):
                    yield found

    return cache(lambda: forecast(models(), memory_budget(config), config.limits))


def _checks_of(
    settings: BackendSettings, config: Config, known: Callable[[], Forecast]
) -> Iterator[Check]:
    name = settings.name
    model, memory, worker = (f"{each}[{name}]" for each in CHECKS_OF_BACKENDS)
    try:
        settings = located(settings)
    except CommandError as error:
        finding = failed(error.text)
        yield Check(model, lambda: finding)
        return
    if not isinstance(settings, MockSettings):
        yield Check(model, partial(check_model, settings))
        yield Check(
            memory,
            lambda: check_memory(name, known(), daemon_runs=_daemon_runs(config)),
            ["packages", model],
        )
    yield Check(
        worker,
        lambda: check_worker(
            settings, config.limits, lambda demand: known().share(name, demand)
        ),
        () if isinstance(settings, MockSettings) else ["packages", model, memory],
    )


def _daemon_runs(config: Config) -> bool:
    return check_lock(socket_directory(config)).detail == HELD
