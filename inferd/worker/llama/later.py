"""Something that takes a while to make, and is not needed at once."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """Made in a thread, once ``begin`` is called; who needs it before waits for it."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []
        self._failure: BaseException | None = None
        self._has_begun = False
        self._is_over = threading.Event()

    @property
    def is_being_made(self) -> bool:
        """Whether the thread is at work."""
        return self._has_begun and not self._is_over.is_set()

    def begin(self) -> None:
        """Begin to make it."""
        self._has_begun = True
        threading.Thread(target=self._run, name="later", daemon=True).start()

    def get(self) -> T:
        """Wait for it.

        Raises:
            RuntimeError: it could not be made, because of its cause.
        """
        self._is_over.wait()
        if not self._made:
            raise RuntimeError("it could not be made") from self._failure
        return self._made[0]

    def _run(self) -> None:
        try:
            self._made.append(self._make())
        except BaseException as error:  # noqa: BLE001  # told to whoever needs it
            self._failure = error
        finally:
            self._is_over.set()
