"""The backends of the kind ``echo``: a greeting, out of the daemon's own process."""

from collections.abc import Callable

from inferd.backend.capabilities import BackendCapabilities
from inferd.engine.in_daemon import ReadyObserver
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.kinds.records import EchoSettings


class EchoBackend(ScriptedBackend):
    """Answers every request with the greeting."""

    def __init__(self, settings: EchoSettings, observer: ReadyObserver) -> None:
        super().__init__(
            Script(tokens=(settings.greeting,)),
            name=settings.name,
            capabilities=BackendCapabilities(model="echo"),
            is_ready=not settings.is_broken,
        )
        self._observer = observer
        if settings.is_broken:
            self.fail_to_start(f"backend {settings.name}: it is broken")

    async def run(self, on_ready: Callable[[], None]) -> None:
        def get_ready() -> None:
            self._observer.ready(self.name, self.capabilities)
            on_ready()

        await super().run(get_ready)


def make_backend(settings: EchoSettings, observer: ReadyObserver) -> EchoBackend:
    """Make a backend."""
    return EchoBackend(settings, observer)
