"""What people do with tools that a model wants to call."""

import json
import sys
from pathlib import Path

import pytest

from tests.daemon.bridge import bridge_to
from tests.daemon.harness import mock

pytestmark = pytest.mark.short_version

PROGRAM = Path(__file__).parents[1] / "fakes/tool_server.py"
CALL = json.dumps({"name": "maths__add", "arguments": {"a": 1, "b": 2}})


def test_a_call_is_allowed_and_the_next_denied_by_keyboard(
    new_reader, make_daemon, tmp_path
):
    command = [sys.executable, str(PROGRAM), "honest"]
    server = {
        "name": "maths",
        "command": command,
        "reads": [str(PROGRAM)],
        "start_s": 600,
    }
    chats = {"database": str(tmp_path / "chats.db"), "tool_servers": [server]}
    tokens = ["Let me see. ", f"<tool_call>{CALL}</tool_call>"]
    backends = [mock(name="caller", tokens=tokens)]
    daemon = make_daemon({"backend": backends, "chats": chats}).start()
    with bridge_to(daemon) as bridge:
        reader = new_reader(bridge.address).open()
        page = reader.page
        reader.choose("caller")
        reader.say("One and two?")
        decision = page.get_by_role("group", name="May maths__add be called?")
        decision.wait_for()
        shown = page.locator(".tool-call").first
        assert '"a": 1' in shown.get_by_role("region", name="Input").inner_text()
        decision.get_by_role("button", name="Allow").press("Enter")
        page.locator('.tool-call[data-state="done"]').wait_for()
        assert shown.locator("details").get_attribute("open") is None
        shown.locator("summary").press("Enter")
        result = shown.get_by_role("region", name="Result")
        assert result.inner_text() == "sum 3"
        decision.get_by_role("button", name="Deny").press("Enter")
        page.locator('.tool-call[data-state="denied"]').wait_for()
        decision.wait_for()
        page.reload()
        decision.wait_for()
        reader.button("Stop").click()
        reader.answered("cancelled")
        assert page.locator(".tool-call").count() >= 3
        assert decision.count() == 0
        reader.button("Settings").click()
        tools = page.get_by_role("group", name="Tools that answers may call")
        assert "add (asks first)" in tools.inner_text()
        tools.get_by_role("checkbox").press("Space")
        reader.button("Keep").click()
        page.get_by_role("dialog").wait_for(state="detached")
        reader.say("Again?")
        assert reader.answered().locator('[data-state="told"]').count() <= 1
