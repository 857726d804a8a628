"""No text of a model becomes markup, script or a request: the policy, and what is drawn."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from inferd.bridge.page.files import HEADERS, STATIC, read_files

TRAPS = Path(__file__).parents[1] / "unit/bridge/page/modules/traps.json"
DRAW = Path(__file__).parent / "f59_draw.mjs"

pytestmark = pytest.mark.slow


def test_no_trap_becomes_an_element_that_runs_or_fetches():
    traps = json.loads(TRAPS.read_text())
    assert len(traps) >= 30
    done = subprocess.run(
        ["node", DRAW, STATIC, *traps], capture_output=True, text=True, check=True
    )
    drawn = done.stdout
    types = set(re.findall(r'"type":"(\w+)"', drawn))
    assert types & {"p", "button", "figure"}
    assert not types & {
        "script",
        "img",
        "svg",
        "iframe",
        "a",
        "style",
        "object",
        "form",
    }
    assert not re.search(r'"(?:href|src|srcdoc|on\w+|style)":', drawn)


def test_the_browser_is_told_to_refuse_markup_and_other_addresses():
    policy = HEADERS["content-security-policy"]
    for rule in ("default-src 'none'", "script-src 'self'", "connect-src 'self'"):
        assert f"{rule};" in policy
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert HEADERS["x-dns-prefetch-control"] == "off"
    own = [file for name, file in read_files().items() if "vendor/" not in name]
    assert not any(b"innerHTML" in file.data for file in own)
