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
        self._is_started = False
        self._is_done = threading.Event()

    @property
    def is_running(self) -> bool:
        """Whether the thread is computing."""
        return self._is_started and not self._is_done.is_set()

    def start(self) -> None:
        """Start the thread; called once."""
        self._is_started = True
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
            self._is_done.set()
