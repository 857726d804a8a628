"""The tasks of a downloader, by their kind."""

from inferd.downloader.fetch import Send, fetch
from inferd.downloader.hub import list_hub, prepare
from inferd.downloader.sandbox import enter_sandbox
from inferd.downloader.session import TaskError, Web
from inferd.models.pull.messages import (
    DETAIL_MAX_CHARS,
    Failure,
    Fetch,
    ListHub,
    Task,
    framed,
)


class TaskRunner:
    """Does tasks, and sends what comes of them.

    Args:
        send: sends bytes to the command.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._web = Web()

    def enter_sandbox(self, parent_pid: int) -> tuple[str, ...]:
        """Import what tasks need, and restrict this process; return what the kernel lacks.

        Args:
            parent_pid: of the command.
        """
        prepare(self._web)
        return enter_sandbox(parent_pid)

    def run(self, task: Task) -> None:
        """Do a task."""
        try:
            match task:
                case Fetch():
                    fetch(self._web, task, self._send)
                case ListHub():
                    self._send(framed(list_hub(self._web, task)))
        except TaskError as error:
            detail = str(error)[:DETAIL_MAX_CHARS]
            self._send(framed(Failure(code=error.code, detail=detail)))
