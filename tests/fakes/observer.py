"""An observer of engines that takes no notice."""

from inferd.capabilities import BackendCapabilities
from inferd.engine.restart import Pause
from inferd.ipc import Boxed, Loading


class Deaf:
    """Hears nothing."""

    def loading(self, backend: str, loading: Loading) -> None:
        pass

    def boxed(self, backend: str, boxed: Boxed) -> None:
        pass

    def ready(self, backend: str, capabilities: BackendCapabilities) -> None:
        pass

    def died(self, backend: str, reason: str, pause: Pause) -> None:
        pass

    def stepped_down(
        self, backend: str, reason: str, *, crashed: str, lower: str
    ) -> None:
        pass
