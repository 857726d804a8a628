"""Fixtures of the tests in a browser: one browser, one bridge, and a reader for each test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.browsing import BACKENDS, Reader, chromium
from tests.daemon.bridge import BridgeProcess, bridge_to
from tests.daemon.fixtures import daemons, make_daemon, pytest_runtest_makereport
from tests.daemon.harness import DaemonProcess

__all__ = ["make_daemon", "pytest_runtest_makereport"]

NewReader = Callable[..., Reader]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser of a module: while it is there, its event loop runs in this thread."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    """The daemon of a module, which serves two requests at a time."""
    with daemons() as make:
        yield make({"backend": BACKENDS, "admission": {"max_active": 2}}).start()


@pytest.fixture(scope="module")
def bridge(daemon: DaemonProcess) -> Iterator[BridgeProcess]:
    """The bridge of a module, with chats of its own."""
    with bridge_to(daemon) as started:
        yield started


@pytest.fixture
def new_reader(browser: Browser, bridge: BridgeProcess) -> Iterator[NewReader]:
    """Make readers, whose pages have done nothing that they must not."""
    made: list[Reader] = []

    def make(address: str = "", **options: Any) -> Reader:
        context = browser.new_context(**options)
        reader = Reader(context, address or bridge.address)
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.context.close()
        assert not reader.faults


@pytest.fixture
def reader(new_reader: NewReader) -> Reader:
    """Somebody who has opened the page."""
    return new_reader().open()
