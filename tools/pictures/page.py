"""Takes the picture of the page's status: ``python -m tools.pictures.page``."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from PIL import Image

from inferd.bridge.identity.token import TokenRecord, make_token
from inferd.bridge.identity.token_file import changing_tokens
from tests.browser.browsing import COUNTED, Reader, chromium
from tests.daemon.bridge import BridgeProcess, bridge_to, helper_of
from tests.daemon.fixtures import daemons
from tests.daemon.harness import mock

ALLOWED: Final = ["list", "status", "machine", "log", "load", "unload"]
SHORT: Final = COUNTED[:40]
"""An answer that has ended when the picture is taken."""
ASKED: Final = (
    *(("anna", "chat"), ("bert", "coder"), ("carla", "chat"), ("dora", "chat")),
)
LOOKS_MS: Final = 25_000
"""Milliseconds until the plots have some looks."""
N_COLOURS: Final = 128
"""Colours of the picture, which takes a third of the bytes so."""
TARGET: Final = Path(__file__).parents[2] / "docs" / "page-status.png"


@contextmanager
def _bridge(folder: Path) -> Iterator[BridgeProcess]:
    """Serve two requests at a time to people with tokens."""
    table = {
        "backend": [
            mock(name="chat", tokens=COUNTED, token_delay_ms=40, load="demand"),
            mock(name="coder", tokens=COUNTED, token_delay_ms=25, load="demand"),
            mock(name="sorter", tokens=SHORT, token_delay_ms=5),
        ],
        "admission": {"max_active": 2},
        "access": {"gateways": {"uids": [os.getuid()]}},
        "bridge": {"tokens": str(folder / "tokens.json"), "gateway": True},
        "bridge_helper": {"allow": ALLOWED},
    }
    with daemons() as make:
        daemon = make(table).start()
        with helper_of(daemon), bridge_to(daemon) as bridge:
            yield bridge


def status(folder: Path, target: Path) -> None:
    """Take the status view while four people ask and others have."""
    with _bridge(folder) as bridge, chromium() as browser, ExitStack() as stack:

        def reader(name: str, **options: Any) -> Reader:
            context = stack.enter_context(browser.new_context(**options))
            opened = Reader(context, bridge.address)
            token = _token(folder / "tokens.json", name)
            opened.page.add_init_script(
                f"sessionStorage.setItem('inferd.token', '{token}')"
            )
            return opened.open()

        for name in ("anna", "bert", "bert"):
            one = reader(name)
            _ask(one, "sorter")
            one.answered()
        for name, model in ASKED:
            _ask(reader(name), model)
        admin = Reader(
            stack.enter_context(
                browser.new_context(viewport={"width": 1100, "height": 1400})
            ),
            bridge.address,
        ).open()
        admin.page.get_by_role("link", name="Status", exact=True).click()
        admin.page.get_by_role("cell", name="dora").wait_for()
        admin.page.wait_for_timeout(LOOKS_MS)
        admin.page.screenshot(path=target)


def _ask(reader: Reader, model: str) -> None:
    reader.choose(model)
    reader.say("count")


def _token(path: Path, name: str) -> str:
    token, token_id, digest = make_token(os.urandom(38))
    with changing_tokens(path) as known:
        known.append(TokenRecord(id=token_id, name=name, sha256=digest))
    return token


def main() -> None:
    """Write the picture into the documents."""
    with tempfile.TemporaryDirectory() as folder:
        status(Path(folder), TARGET)
    with Image.open(TARGET) as picture:
        few = picture.quantize(N_COLOURS)
    few.save(TARGET, optimize=True)


if __name__ == "__main__":
    main()
