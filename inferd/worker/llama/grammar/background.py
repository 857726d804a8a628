"""Compute a value in a background thread."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundValue(Generic[T]):
    """A value that a thread computes after ``start``; ``get`` waits for it."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: list[T] = []
        self._failure: BaseException | None = None
        self.is_running = False
        """Whether the thread is computing."""
        self._is_done = threading.Event()

    def start(self) -> None:
        """Start the thread; called once."""
        self.is_running = True
        threading.Thread(target=self._run, name="background-value", daemon=True).start()

    def get(self) -> T:
        """Wait for the value.

        Raises:
            RuntimeError: computing it failed; the failure is the cause.
        """
        self._is_done.wait()
        if not self._values:
            raise RuntimeError("the background computation failed") from self._failure
        return self._values[0]

    def _run(self) -> None:
        try:
            self._values.append(self._make())
        except BaseException as error:  # noqa: BLE001  # raised by ``get``
            self._failure = error
        finally:
            self.is_running = False
            self._is_done.set()
