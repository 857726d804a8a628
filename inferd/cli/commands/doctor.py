"""inferd doctor: check the machine and the configuration, and hint at repairs."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final

import msgspec

from inferd import __version__
from inferd.cli.console import EXIT_NOT_READY, EXIT_OK
from inferd.config.load import load_config, locate_model, socket_directory
from inferd.config.settings import BackendSettings, Config, ConfigError, MockSettings
from inferd.doctor.backend import check_model, check_worker
from inferd.doctor.check import Check, Finding, Verdict, failed, ok, run_checks
from inferd.doctor.machine import check_cpu, check_packages, check_python
from inferd.doctor.memory import Forecast, ModelSettings, check_memory, forecast
from inferd.doctor.runtime import (
    LOCK_HELD,
    check_admin,
    check_directory,
    check_lock,
    check_sockets,
)
from inferd.doctor.sandbox import check_sandbox
from inferd.server.capacity import memory_budget
from inferd.terminal import json_safe, print_json, print_line

BACKEND_CHECKS: Final = ("model", "memory", "worker")

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


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each check as soon as it is done, or one JSON report."""
    findings: list[Finding] = []
    for finding in run_checks(list(all_checks(arguments.config))):
        findings.append(finding)
        if not arguments.json:
            print_line(f"{MARKS[finding.verdict]} {finding.check}: {finding.detail}")
            if finding.hint:
                print_line(f"       hint: {finding.hint}")
    passed = all(finding.verdict is not Verdict.FAILED for finding in findings)
    if arguments.json:
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


def all_checks(file: Path | None) -> Iterator[Check]:
    """Yield every check; those that need the configuration only if it can be read."""
    yield Check("python", check_python)
    yield Check("packages", check_packages)
    yield Check("cpu", check_cpu)
    config, finding = _configuration(file)
    yield Check("config", lambda: finding)
    if config is None:
        return
    yield Check("box", partial(check_sandbox, config.limits))
    directory = socket_directory(config)
    lazy_forecast = _lazy_forecast(config)
    for settings in config.backend:
        yield from _backend_checks(settings, config, lazy_forecast)
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
    except ConfigError as error:
        return None, failed(str(error))
    names = ", ".join(backend.name for backend in config.backend)
    return config, ok(f"backends: {names}")


def _lazy_forecast(config: Config) -> Callable[[], Forecast]:
    """Return a function that forecasts the memory of all backends, once."""

    def models() -> Iterator[ModelSettings]:
        for settings in config.backend:
            with suppress(ConfigError):  # reported by the check of that model
                found = locate_model(settings)
                if not isinstance(found, MockSettings):
                    yield found

    return cache(lambda: forecast(models(), memory_budget(config), config.limits))


def _backend_checks(
    settings: BackendSettings, config: Config, lazy_forecast: Callable[[], Forecast]
) -> Iterator[Check]:
    name = settings.name
    model, memory, worker = (f"{check}[{name}]" for check in BACKEND_CHECKS)
    try:
        settings = locate_model(settings)
    except ConfigError as error:
        finding = failed(str(error))
        yield Check(model, lambda: finding)
        return
    if not isinstance(settings, MockSettings):
        yield Check(model, partial(check_model, settings))
        yield Check(
            memory,
            lambda: check_memory(
                name, lazy_forecast(), daemon_runs=_daemon_runs(config)
            ),
            ["packages", model],
        )
    yield Check(
        worker,
        lambda: check_worker(
            settings, config.limits, lambda demand: lazy_forecast().share(name, demand)
        ),
        () if isinstance(settings, MockSettings) else ["packages", model, memory],
    )


def _daemon_runs(config: Config) -> bool:
    return check_lock(socket_directory(config)).detail == LOCK_HELD
