"""Drive the page of a real bridge in Debian's Chromium, as a person would."""

import json
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Locator, Page, sync_playwright

from tests.daemon.harness import mock
from tools.programs import program_python

CHROMIUM: Final = "chromium"
OPTIONS: Final = [
    "--no-sandbox",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]
"""Chromium has no sandbox of its own as root, where the tests run; its microphone is a tone."""
PATIENCE_MS: Final = 300_000
PIECE_BYTES: Final = 65536


def tokens_of(text: str) -> list[str]:
    """Split a text into what a model writes at once."""
    return re.findall(r"\s*\S+\s*|\s+", text)


RICH: Final = (Path(__file__).parent / "rich.md").read_text()
TRAPS_FILE: Final = Path(__file__).parents[1] / "unit/bridge/page/modules/traps.json"
TRAPS: Final = json.loads(TRAPS_FILE.read_text())
COUNTED: Final = [f"word{number} " for number in range(1, 4001)]
"""An answer that takes long enough for all that is done to it."""

BACKENDS: Final = [
    mock(name="rich", tokens=tokens_of(RICH)),
    mock(name="slow", tokens=COUNTED, token_delay_ms=15),
    mock(name="hostile", tokens=tokens_of("\n\n".join(TRAPS))),
    mock(name="eyes", tokens=["A ", "cat."], vision=True),
    mock(name="ears", tokens=["heard "], transcribe=True),
]

PHONE: Final = {
    "viewport": {"width": 390, "height": 780},
    "is_mobile": True,
    "has_touch": True,
    "device_scale_factor": 2,
}


def axe() -> str:
    """Give the script of axe."""
    root = program_python("page").parents[1]
    return (root / "node_modules" / "axe-core" / "axe.min.js").read_text()


def findings(page: Page) -> list[str]:
    """Give what axe finds serious in what is shown."""
    page.evaluate(axe())
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{each['id']}: {node['html']}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]


class Cable:
    """A TCP connection between the browser and the bridge, which can be cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._socks: set[socket.socket] = set()
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections, and new ones at once."""
        self.is_cut = True
        for sock in list(self._socks):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Let connections through again."""
        self.is_cut = False

    def close(self) -> None:
        """End all of it."""
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.is_cut:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
                self._socks |= {near, far}
                for ends in ((near, far), (far, near)):
                    threading.Thread(
                        target=self._pass_on, args=ends, daemon=True
                    ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                target.sendall(data)
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
            self._socks.discard(sock)


class Reader:
    """A person with the page open.

    Args:
        context: of the browser; what it keeps is the reader's.
        address: of the bridge.
    """

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.context = context
        self.address = address
        self.faults: list[str] = []
        """What the page did that it must not: faults of scripts, dialogs, other addresses."""
        self.requests: list[Any] = []
        context.set_default_timeout(PATIENCE_MS)
        context.on("request", self._note)
        self.page = self.new_tab()

    def new_tab(self) -> Page:
        """Open another tab."""
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.faults.append(f"fault: {error}"))
        page.on("dialog", lambda dialog: self.faults.append(dialog.message))
        page.on("console", lambda message: self._hear(message.text))
        return page

    def _hear(self, text: str) -> None:
        if "Content Security Policy" in text or "TrustedHTML" in text:
            self.faults.append(text)

    def _note(self, request: Any) -> None:
        self.requests.append(request)
        if not request.url.startswith((self.address, "blob:" + self.address)):
            self.faults.append(f"another address: {request.url}")

    def open(self, place: str = "") -> "Reader":
        """Open the page, or a place of it."""
        self.page.goto(f"{self.address}/{place}")
        return self

    def choose(self, model: str) -> None:
        """Choose a model once it is listed."""
        self.page.get_by_label("Model", exact=True).select_option(model)

    def say(self, text: str) -> None:
        """Write a message and send it."""
        field = self.page.get_by_label("Message", exact=True)
        field.fill(text)
        field.press("Enter")

    @property
    def answers(self) -> Locator:
        """All answers that are shown."""
        return self.page.locator(".answer")

    def answered(self, state: str = "complete") -> Locator:
        """Give the last answer once it is in a state."""
        last = self.answers.last
        self.page.wait_for_function(
            """state => [...document.querySelectorAll('.answer')].at(-1)
                ?.dataset.state === state""",
            arg=state,
        )
        return last

    def wait_text(self, text: str) -> None:
        """Wait until the last answer has a text."""
        self.page.wait_for_function(
            """text => [...document.querySelectorAll('.answer')].at(-1)
                ?.textContent.includes(text)""",
            arg=text,
        )

    def button(self, name: str) -> Locator:
        """Give a button by its name."""
        return self.page.get_by_role("button", name=name, exact=True)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser."""
    path = shutil.which(CHROMIUM)
    assert path, "apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()
