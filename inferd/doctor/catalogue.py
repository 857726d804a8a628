"""The checks, in their order: each a name, what it needs, and a function."""

import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

from msgspec.structs import replace

import inferd
from inferd.config.kinds.kind import (
    Credential,
    InDaemon,
    InWorker,
    MemoryPolicy,
    RequiredFile,
)
from inferd.config.kinds.registry import KINDS, KindRegistry, S
from inferd.config.load import locate_model, socket_directory
from inferd.config.settings import BackendSettings, Config, ConfigError
from inferd.doctor.accelerator import UnitLimits, check_driver, find_devices
from inferd.doctor.backend import (
    broken_hint,
    check_files,
    check_in_daemon,
    check_worker,
    model_hint,
    remote_checks,
)
from inferd.doctor.check import Check, Finding, Verdict, failed
from inferd.doctor.configuration import read_configuration
from inferd.doctor.ladder import Ladders
from inferd.doctor.machine import (
    Limits,
    check_clock,
    check_cpu,
    check_limits,
    check_packages,
    check_python,
)
from inferd.doctor.memory import Forecast, check_memory, forecast
from inferd.doctor.runtime import (
    LOCK_HELD,
    check_admin,
    check_directory,
    check_lock,
    check_sockets,
)
from inferd.doctor.sandbox import (
    check_sandbox,
    check_sandbox_in_force,
    last_sandbox_event,
)
from inferd.doctor.served import MemoryBeside, served_checks
from inferd.doctor.service import (
    check_accounts,
    check_bridge,
    check_readable,
    check_unit,
    service_may_read,
    service_uid,
    without_drop_in,
)
from inferd.doctor.storage import (
    LogPlace,
    check_disk,
    check_log_directory,
    check_store,
    space_of,
    unused_bytes,
)
from inferd.engine.supervisor.keys import stash_keys
from inferd.limits.server import BACKEND_DESCRIPTORS, DAEMON_DESCRIPTORS
from inferd.memory.available import GroupLimit, available_bytes, group_limit
from inferd.memory.plan import MemoryBudget, mib
from inferd.paths import (
    LOG_FILE,
    log_directory,
    model_stores,
    models_directory,
    runtime_directory,
)
from inferd.server.capacity import memory_budget
from inferd.server.loading.store_state import n_store_workers
from inferd.service.units import (
    BRIDGE,
    SYSTEM,
    UNIT_FILES,
    SystemdService,
    UnitState,
    installed_services,
    service_of,
    unit_problems,
    unit_state,
)
from inferd.surfaces import SURFACES


def all_checks(
    file: Path | None,
    kinds: KindRegistry = KINDS,
    service: SystemdService | None = None,
    *,
    asks_remotes: bool = False,
) -> Iterator[Check]:
    """Yield every check of a daemon; those that need the configuration if it can be read.

    Args:
        file: the configuration; ``None`` for that of this user or the service.
        kinds: the kinds of backends.
        service: whose daemon is checked, with the variables of its environment; ``None``
            for this user's daemon.
        asks_remotes: whether to connect to remote engines.
    """
    yield Check("python", check_python)
    yield Check("packages", check_packages)
    yield Check("cpu", check_cpu)
    built = Path(inferd.__file__).stat().st_mtime
    yield Check("clock", lambda: check_clock(time.time(), built))
    state = None
    if service is not None:
        state = unit_state(service)
        if not service.is_user:
            yield Check("accounts", check_accounts)
        problems = unit_problems(service)
        yield Check("unit", partial(check_unit, service, state, problems))
    config, finding = read_configuration(file, kinds, service)
    yield Check("config", lambda: finding)
    if config is not None:
        yield from _Checks(config, kinds, service, state).all()
        for each in config.backend:
            yield from remote_checks(each, kinds, config.limits, asks=asks_remotes)


def services_checks() -> Iterator[Check]:
    """Yield a check for each service of this machine, and for this user's if it is used."""
    own = service_of(runtime_directory())
    if own is not None and own.is_user:
        state = unit_state(own)
        if state is not None and (state.is_listening or not state.is_stopped):
            yield Check("service[user]", partial(check_unit, own, state))
    for service in installed_services():
        stem = service.unit.removesuffix(".service")
        yield Check(f"service[{stem}]", partial(_check_service, service))


def _check_service(service: SystemdService) -> Finding:
    _, _, name = service.unit.removesuffix(".service").partition("@")
    found = check_unit(service, unit_state(service), unit_problems(service))
    option = f"--instance {name}" if name else "--system"
    if found.hint == service.journal:
        return failed(found.detail, f"sudo inferd doctor {option}")
    return found


class _Checks:
    """The checks that need a configuration."""

    def __init__(
        self,
        config: Config,
        kinds: KindRegistry,
        service: SystemdService | None,
        state: UnitState | None,
    ) -> None:
        self._config = config
        self._kinds = kinds
        self._service = service
        self._state = state
        with suppress(OSError):  # the check of the backend reports it
            stash_keys(map(self._credential_of, config.backend))

    def _credential_of(self, settings: BackendSettings) -> Credential | None:
        served_by = self._kinds.of(settings).served_by
        return (
            served_by.credential(settings) if isinstance(served_by, InWorker) else None
        )

    def all(self) -> Iterator[Check]:
        """Yield them in their order."""
        config = self._config
        yield Check("box", partial(check_sandbox, config.limits))
        if self._service is not None:
            yield Check(
                "sandbox-in-force", partial(self._check_in_force, self._service)
            )
        yield Check("limits", self._check_limits)
        yield Check("driver", self._check_driver)
        ladders = Ladders(config.backend, self._budget, config.limits, self._kinds)
        yield from ladders.checks()
        self._config = replace(config, backend=ladders.backends)
        for settings in self._config.backend:
            yield from self._of(settings)
        yield Check("store", partial(check_store, models_directory()))
        yield from served_checks(
            self._config,
            model_stores(),
            lambda: MemoryBeside(self._forecast, self._budget),
            self._kinds,
        )
        yield Check("disk", self._check_disk)
        yield Check("log-directory", self._check_log)
        directory = socket_directory(config)
        yield Check("runtime-directory", partial(check_directory, directory))
        needs = ["runtime-directory"]
        yield Check("lock", partial(check_lock, directory), needs)
        yield Check("sockets", self._check_sockets, needs)
        yield Check("admin", partial(check_admin, directory), needs)
        if self._service == SYSTEM and (UNIT_FILES / BRIDGE.unit).exists():
            yield Check("bridge", lambda: check_bridge(unit_state(BRIDGE), config))

    # --- the machine --------------------------------------------------------------

    def _check_limits(self) -> Finding:
        limits = self._config.limits
        n_wanted = (
            limits.max_connections
            + limits.max_admin_connections
            + DAEMON_DESCRIPTORS
            + BACKEND_DESCRIPTORS
            * (len(self._config.backend) + n_store_workers(self._config.models))
        )
        if self._service is not None and self._state is not None:
            unit, max_files = self._service.unit, self._state.max_files
        else:
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            unit, max_files = "", None if hard == resource.RLIM_INFINITY else hard
        reserve = self._config.memory.reserve
        found = Limits(max_files, self._group_limit(), reserve, unit)
        return check_limits(found, n_wanted)

    def _check_in_force(self, service: SystemdService) -> Finding:
        path = self._log_path()
        event = None if path is None else last_sandbox_event(path / LOG_FILE)
        drop_ins = () if self._state is None else self._state.drop_ins
        hint = without_drop_in(drop_ins[-1], service) if drop_ins else ""
        return check_sandbox_in_force(event, hint)

    def _check_driver(self) -> Finding:
        offloaded = [
            each.name
            for each in self._config.backend
            if getattr(each, "n_gpu_layers", 0)
        ]
        state, service = self._state, self._service
        limits = None
        if state is not None and service is not None:
            limits = UnitLimits(
                service.unit, state.hides_devices, state.denies_generated_code
            )
        return check_driver(find_devices(), offloaded, limits)

    def _check_disk(self) -> Finding:
        store = models_directory()
        log = self._log_path()
        paths = [store, socket_directory(self._config), *([log] if log else [])]
        spaces = {path: space_of(path) for path in paths}
        return check_disk(spaces, store, unused_bytes(store))

    def _log_path(self) -> Path | None:
        configured = self._config.log.directory
        if not self._config.log.file:
            return None
        return log_directory() if configured is None else Path(configured)

    def _check_log(self) -> Finding:
        path = self._log_path()
        if path is None:
            return check_log_directory(None)
        owner = os.geteuid() if self._service is None else service_uid(self._service)
        above = path.parent if path.parent.exists() else path.parent.parent
        can_be_made = self._service is not None or os.access(above, os.W_OK)
        return check_log_directory(LogPlace(path, owner, can_be_made))

    def _check_sockets(self) -> Finding:
        is_system = self._service is not None and not self._service.is_user
        group = self._config.listen.group
        groups = {
            each.socket: each.unit_group if is_system else group or ""
            for each in SURFACES
            if is_system or (group and each.is_inference)
        }
        return check_sockets(
            socket_directory(self._config),
            admin_is_shared=self._config.access.admin is not None,
            groups=groups,
        )

    # --- backends -----------------------------------------------------------------

    def _of(self, settings: S) -> Iterator[Check]:
        """Yield the checks of one backend, by the policies of its kind."""
        kind = self._kinds.of(settings)
        reference = str(getattr(settings, "model", ""))
        try:
            settings = locate_model(settings, self._kinds)
        except ConfigError as error:
            finding = failed(
                str(error),
                model_hint(reference, settings.name) if kind.file_format else "",
            )
            yield Check(f"model[{settings.name}]", lambda: finding)
            return
        needs = [*kind.doctor.needs]
        for check in self._of_files(kind.doctor.files(settings), reference, settings):
            needs.append(check.name)
            yield check
        name = settings.name
        if kind.memory(settings) is MemoryPolicy.DEMANDED:
            hint = broken_hint(reference, kind.doctor.files(settings), name)
            attempt = partial(self._check_memory, name, hint)
            yield Check(f"memory[{name}]", attempt, [*needs])
            needs.append(f"memory[{name}]")
        tried = kind.doctor.without_hashes(settings)
        match kind.served_by:
            case InDaemon() as in_daemon:
                attempt = partial(
                    check_in_daemon, in_daemon, tried, self._config.limits
                )
                yield Check(f"backend[{name}]", attempt, needs)
            case InWorker() as in_worker:
                attempt = partial(self._check_worker, in_worker, tried)
                yield Check(f"worker[{name}]", attempt, needs)

    def _of_files(
        self, files: Sequence[RequiredFile], reference: str, settings: BackendSettings
    ) -> Iterator[Check]:
        name = settings.name
        if not files:
            return
        yield Check(f"model[{name}]", partial(check_files, files, reference, name))
        if self._service is not None and not self._service.is_user:
            attempt = partial(check_readable, name, files, service_may_read)
            yield Check(f"readable[{name}]", attempt, [f"model[{name}]"])

    def _check_memory(self, name: str, hint: str) -> Finding:
        is_running = check_lock(socket_directory(self._config)).detail == LOCK_HELD
        found = check_memory(name, self._forecast, hint, daemon_runs=is_running)
        has_budget = self._config.memory.budget is not None
        if found.verdict is Verdict.OK or has_budget or name in self._forecast.failures:
            return found
        return replace(found, detail=f"{found.detail}; {self._budget_source()}")

    def _budget_source(self) -> str:
        """Say where the budget of memory comes from, if none is configured."""
        group = self._group_limit()
        kept = f"[memory] reserve keeps {mib(self._config.memory.reserve)}"
        if group is not None and group.n_bytes <= available_bytes():
            left = mib(group.n_bytes)
            return f"the control group {group.group} leaves {left}, of which {kept}"
        return f"{mib(available_bytes())} are available, of which {kept}"

    def _group_limit(self) -> GroupLimit | None:
        state = self._state
        if state is None:
            return group_limit()
        if state.max_memory is None:
            return None
        return GroupLimit(state.memory_unit, state.max_memory)

    def _check_worker(
        self, served_by: InWorker[BackendSettings], settings: BackendSettings
    ) -> Finding:
        return check_worker(
            *(served_by.program, settings, self._config.limits),
            partial(self._forecast.share, settings.name),
            served_by.credential(settings),
        )

    @cached_property
    def _forecast(self) -> Forecast:
        """The memory of all backends that demand some, asked for once."""
        return forecast(self._demanding(), self._budget, self._config.limits)

    @property
    def _budget(self) -> MemoryBudget:
        """The memory to share, within what the control group of a service allows."""
        budget = memory_budget(self._config)
        group = self._group_limit()
        if group is not None and self._config.memory.budget is None:
            left = max(0, group.n_bytes - self._config.memory.reserve)
            budget = replace(budget, n_bytes=min(budget.n_bytes, left))
        return budget

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
