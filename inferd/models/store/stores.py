"""Several stores in which a model is looked up: the first that has its name counts."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from inferd.models.store.directory import StoreDirectory, StoreError
from inferd.models.store.store import ModelNotInStoreError, ModelStore


class Stores:
    """Open stores, in their order.

    A store that other users may write to, or that cannot be opened, does not hide the models
    of the others: it is passed over, and the reason is told where a model is in none.

    Args:
        stores: that can be read.
        errors: why others cannot be.
    """

    def __init__(
        self, stores: Sequence[ModelStore], errors: Sequence[StoreError | OSError]
    ) -> None:
        self._stores = stores
        self.errors = [*errors]

    @property
    def faults(self) -> list[str]:
        """The reasons for which stores were passed over."""
        return [*map(str, self.errors)]

    def __len__(self) -> int:
        return len(self._stores)

    def first_with(self, name: str) -> ModelStore:
        """Return the first store that has a model, though its files may be missing.

        Raises:
            InvalidNameError: it is no name.
            ModelNotInStoreError: no store has it.
            StoreError: no store has it, and one could not be looked into.
            OSError: the file system does.
        """
        for store in self._stores:
            if store.has(name):
                return store
        unknown = [str(store.unknown(name)) for store in self._stores]
        if self.faults:
            raise StoreError("; ".join([*self.faults, *unknown]))
        raise ModelNotInStoreError(
            "; ".join(unknown) or "there is no file of this path, and no model store"
        )

    def names(self) -> dict[str, ModelStore]:
        """Return the models of all stores by name, each with the store that counts.

        One with too many, or that cannot be read, is passed over, and ``errors`` has it.
        """
        found: dict[str, ModelStore] = {}
        for store in self._stores:
            try:
                names = store.names()
            except (StoreError, OSError) as error:
                self.errors.append(error)
                continue
            for name in names:
                found.setdefault(name, store)
        return dict(sorted(found.items()))


@contextmanager
def opened_stores(paths: Sequence[Path]) -> Iterator[Stores]:
    """Open those of several stores that exist and can be read; none is made."""
    stores: list[ModelStore] = []
    errors: list[StoreError | OSError] = []
    with ExitStack() as stack:
        for path in paths:
            try:
                directory = StoreDirectory.open(path, makes=False)
            except (StoreError, OSError) as error:
                errors.append(error)
                continue
            if directory is not None:
                stores.append(ModelStore(stack.enter_context(directory)))
        yield Stores(stores, errors)
