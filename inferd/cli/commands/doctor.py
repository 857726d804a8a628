"""inferd doctor: check the machine and the configuration, and hint at repairs."""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import msgspec

from inferd import __version__
from inferd.cli.console import EXIT_NOT_READY, EXIT_OK
from inferd.config.kinds.kind import (
    InDaemon,
    InWorker,
    MemoryPolicy,
)
from inferd.config.kinds.registry import KINDS, KindRegistry, S
from inferd.config.load import load_config, locate_model, socket_directory
from inferd.config.settings import BackendSettings, Config, ConfigError
from inferd.doctor.backend import check_files, check_in_daemon, check_worker
from inferd.doctor.check import Check, Finding, Verdict, failed, ok, run_checks
from inferd.doctor.ladder import Ladders
from inferd.doctor.machine import check_cpu, check_packages, check_python
from inferd.doctor.memory import Forecast, check_memory, forecast
from inferd.doctor.runtime import (
    LOCK_HELD,
    check_admin,
    check_directory,
    check_lock,
    check_sockets,
)
from inferd.doctor.sandbox import check_sandbox
from inferd.memory.plan import MemoryDemand, MemoryShare
from inferd.server.capacity import memory_budget
from inferd.terminal import json_safe, print_json, print_line

BACKEND_CHECKS: Final = ("model", "memory", "worker", "backend")

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


def run(arguments: argparse.Namespace, kinds: KindRegistry = KINDS) -> int:
    """Print a line for each check as soon as it is done, or one JSON report."""
    findings: list[Finding] = []
    for finding in run_checks(list(all_checks(arguments.config, kinds))):
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


def all_checks(file: Path | None, kinds: KindRegistry = KINDS) -> Iterator[Check]:
    """Yield every check; those that need the configuration only if it can be read."""
    yield Check("python", check_python)
    yield Check("packages", check_packages)
    yield Check("cpu", check_cpu)
    config, finding = _configuration(file, kinds)
    yield Check("config", lambda: finding)
    if config is None:
        return
    yield Check("box", partial(check_sandbox, config.limits))
    directory = socket_directory(config)
    ladders = Ladders(config.backend, memory_budget(config), config.limits, kinds)
    yield from ladders.checks()
    config = msgspec.structs.replace(config, backend=ladders.backends)
    checks = _BackendChecks(config, kinds)
    for settings in config.backend:
        yield from checks.of(settings)
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


def _configuration(
    file: Path | None, kinds: KindRegistry
) -> tuple[Config | None, Finding]:
    try:
        config = load_config(file, kinds=kinds)
    except ConfigError as error:
        return None, failed(str(error))
    names = ", ".join(backend.name for backend in config.backend)
    return config, ok(f"backends: {names}")


class _BackendChecks:
    """The checks of backends, by the policies of their kinds."""

    def __init__(self, config: Config, kinds: KindRegistry) -> None:
        self._config = config
        self._kinds = kinds

    def of(self, settings: S) -> Iterator[Check]:
        """Yield the checks of one backend."""
        kind = self._kinds.of(settings)
        names = {check: f"{check}[{settings.name}]" for check in BACKEND_CHECKS}
        try:
            settings = locate_model(settings, self._kinds)
        except ConfigError as error:
            finding = failed(str(error))
            yield Check(names["model"], lambda: finding)
            return
        needs = [*kind.doctor.needs]
        if files := kind.doctor.files(settings):
            yield Check(names["model"], partial(check_files, files))
            needs.append(names["model"])
        if kind.memory(settings) is MemoryPolicy.DEMANDED:
            yield Check(
                names["memory"], partial(self._check_memory, settings.name), [*needs]
            )
            needs.append(names["memory"])
        tried = kind.doctor.without_hashes(settings)
        match kind.served_by:
            case InDaemon() as in_daemon:
                attempt = partial(
                    check_in_daemon, in_daemon, tried, self._config.limits
                )
                yield Check(names["backend"], attempt, needs)
            case InWorker(program=program):
                attempt = partial(self._check_worker, program, tried)
                yield Check(names["worker"], attempt, needs)

    def _check_memory(self, name: str) -> Finding:
        return check_memory(
            name, self._forecast, daemon_runs=_daemon_runs(self._config)
        )

    def _check_worker(self, program: str, settings: BackendSettings) -> Finding:
        def share(demand: MemoryDemand) -> MemoryShare:
            return self._forecast.share(settings.name, demand)

        return check_worker(program, settings, self._config.limits, share)

    @cached_property
    def _forecast(self) -> Forecast:
        """The memory of all backends that demand some, asked for once."""
        budget = memory_budget(self._config)
        return forecast(self._demanding(), budget, self._config.limits)

    def _demanding(self) -> Iterator[tuple[str, BackendSettings]]:
        for settings in self._config.backend:
            kind = self._kinds.of(settings)
            match kind.served_by:
                case InWorker(program=program) if (
                    kind.memory(settings) is MemoryPolicy.DEMANDED
                ):
                    with suppress(ConfigError):  # reported by the check of that model
                        located = locate_model(settings, self._kinds)
                        yield program, kind.doctor.without_hashes(located)
                case _:
                    pass


def _daemon_runs(config: Config) -> bool:
    return check_lock(socket_directory(config)).detail == LOCK_HELD
