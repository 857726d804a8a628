"""What the page shows of the machine, and to whom."""

import os

import pytest

from inferd.bridge.identity.token import TokenRecord, make_token
from inferd.bridge.identity.token_file import changing_tokens
from tests.browser.browsing import COUNTED, PHONE, findings, tokens_of
from tests.daemon.bridge import bridge_to, helper_of
from tests.daemon.harness import mock

pytestmark = pytest.mark.short_version

ALLOWED = ["list", "status", "machine", "log", "load", "unload"]


@pytest.fixture
def machine(make_daemon, tmp_path):
    """A daemon that answers one request at a time, with its helper and its bridge."""
    table = {
        "backend": [
            mock(name="slow", tokens=COUNTED, token_delay_ms=15),
            mock(name="idle", tokens=tokens_of("on demand"), load="demand"),
        ],
        "admission": {"max_active": 1},
        "bridge": {"tokens": str(tmp_path / "tokens.json")},
        "bridge_helper": {"allow": ALLOWED},
    }
    daemon = make_daemon(table).start()
    with helper_of(daemon), bridge_to(daemon) as bridge:
        yield bridge


def sign_in(new_reader, bridge, tokens, name):
    token, token_id, digest = make_token(os.urandom(38))
    with changing_tokens(tokens) as known:
        known.append(TokenRecord(id=token_id, name=name, sha256=digest))
    reader = new_reader(bridge.address)
    reader.page.add_init_script(f"sessionStorage.setItem('inferd.token', '{token}')")
    return reader.open()


def test_admins_see_all_and_others_their_own(new_reader, machine, tmp_path):
    ada = sign_in(new_reader, machine, tmp_path / "tokens.json", "ada")
    ada.choose("slow")
    ada.say("count")
    ada.wait_text("word2 ")
    admin = new_reader(machine.address).open()
    admin.choose("slow")
    admin.say("me too")
    admin.wait_text("In the queue: place 1")
    status = admin.page.get_by_role("region", name="Status")
    admin.page.get_by_role("link", name="Status", exact=True).click()
    status.get_by_role("cell", name="running").wait_for()
    status.get_by_role("cell", name="place 1").wait_for()
    status.get_by_role("img", name="In the queue: now 1").wait_for()
    log = status.get_by_role("list", name="Newest lines of the daemon's log")
    log.get_by_text("daemon.ready").wait_for()
    status.get_by_role("button", name="Load idle").click()
    status.get_by_role("button", name="Unload idle").wait_for()
    assert findings(admin.page) == []
    admin.page.set_viewport_size(PHONE["viewport"])
    assert admin.page.evaluate("() => document.documentElement.scrollWidth") <= 390
    pause = status.get_by_role("button", name="Pause")
    pause.click()
    assert pause.get_attribute("aria-pressed") == "true"

    ada.page.get_by_role("link", name="Status", exact=True).click()
    own = ada.page.get_by_role("region", name="Status")
    own.get_by_role("cell", name="running").wait_for()
    text = own.inner_text()
    assert "Your requests" in text
    assert not {"Users' shares", "Queue", "Log"} & set(text.splitlines())
    assert findings(ada.page) == []
    ada.page.go_back()
    ada.button("Stop").click()
    ada.answered("cancelled")
    pause.click()
    status.get_by_role("meter", name="Share of ada").wait_for()
