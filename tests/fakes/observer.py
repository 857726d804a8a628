"""An observer of engines that takes no notice."""

from inferd.backend.capabilities import BackendCapabilities
from inferd.engine.supervisor.restart_policy import RestartDelay
from inferd.ipc.worker import Loading, SandboxReport


class Deaf:
    """Hears nothing."""

    def loading(self, backend: str, loading: Loading) -> None:
        pass

    def sandboxed(self, backend: str, boxed: SandboxReport) -> None:
        pass

    def ready(self, backend: str, capabilities: BackendCapabilities) -> None:
        pass

    def died(self, backend: str, reason: str, pause: RestartDelay) -> None:
        pass

    def remote_changed(self, backend: str, unavailable: str) -> None:
        pass

    def file_changed(self, backend: str, reason: str) -> None:
        pass

    def fell_back(self, backend: str, reason: str, *, crashed: str, lower: str) -> None:
        pass
