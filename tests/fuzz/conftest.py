"""A daemon that hostile clients of one module are let loose on."""

from collections.abc import Iterator

import pytest

from fuzz.target import Target, target


@pytest.fixture(scope="module")
def daemon() -> Iterator[Target]:
    """It is ended with the module, and its log must tell of no bug."""
    with target() as started:
        yield started
