"""Objects that are closed when their ``with`` block is left."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class ClosedOnLeaving(ABC):
    """The base of what a ``with`` block closes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close it, for good."""


class AsyncClosedOnLeaving(ABC):
    """The base of what an ``async with`` block closes."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    @abstractmethod
    async def aclose(self) -> None:
        """Close it, for good."""
