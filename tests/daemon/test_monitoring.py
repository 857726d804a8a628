"""The rules and the dashboard of ``monitoring/``, beside what is exported."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from inferd.bridge.metrics import BridgeMetrics
from tests.daemon.test_metrics import listed
from tests.documents.pages import commands

ROOT: Final = Path(__file__).parents[2]
MONITORING: Final = ROOT / "monitoring"
RULES: Final = (MONITORING / "alerts.yml").read_text()
DOCUMENT: Final = (ROOT / "docs" / "watching.md").read_text()
OTHERS: Final = {"node_textfile_mtime_seconds"}
"""Metrics of node_exporter."""
OF_HISTOGRAMS: Final = re.compile("_(bucket|count|sum)$")
GAUGES: Final = re.compile(r'^ +\("(\w+)", ".*", lambda', re.MULTILINE)
NAME: Final = re.compile(r"\b(?:inferd|node)_[a-z_]+\b")


def exported() -> set[str]:
    """Give all names of metrics, of the daemon and of the bridge."""
    text = BridgeMetrics().text(by_principal=True).decode()
    bridge = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    serve = (ROOT / "inferd" / "bridge" / "serve.py").read_text()
    bridge |= {f"inferd_bridge_{name}" for name in GAUGES.findall(serve)}
    return {*listed(), *bridge, *OTHERS}


def queries() -> dict[str, str]:
    """Give the queries of the dashboard by the titles of their panels."""
    board: dict[str, Any] = json.loads((MONITORING / "grafana.json").read_text())
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    }


def expressions() -> dict[str, str]:
    """Give the expressions of the rules by their names."""
    found = re.findall(
        r"- alert: (\w+)\n +expr: (.*?)\n +(?:for|labels):", RULES, re.DOTALL
    )
    return dict(found)


def test_every_query_names_metrics_that_exist():
    known = exported()
    assert {"inferd_bridge_running", "inferd_bridge_daemon_up"} < known
    named = {**queries(), **expressions()}
    assert len(named) > 30
    for title, expression in named.items():
        names = {OF_HISTOGRAMS.sub("", name) for name in NAME.findall(expression)}
        assert names, title
        assert names <= known, title


def test_the_dashboard_has_no_panel_over_another():
    board = json.loads((MONITORING / "grafana.json").read_text())
    cells = [
        (x, y)
        for panel in board["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + 8)
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + 7)
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_the_document_says_what_to_do_about_each_alert():
    told = re.findall(r"^\| `(Inferd\w+)` \|", DOCUMENT, re.MULTILINE)
    assert told == [*expressions()]
    assert 5 <= len(told) <= 10


@pytest.mark.slow
@pytest.mark.short_version
@pytest.mark.parametrize(
    "words",
    [
        *(each for each in commands("docs/watching.md") if each[:8] == "promtool"),
        "promtool check config --syntax-only monitoring/prometheus.yml",
    ],
)
def test_prometheus_own_tool_finds_nothing_wrong(words: str):
    done = subprocess.run(
        words.split(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.short_version
def test_rules_that_fire_later_or_never_are_found(tmp_path: Path):
    for number in ("> 300", ">= 3", "== 1", "0.05", "== 0", "> 0"):
        broken = RULES.replace(number, number.replace(number.split()[-1], "1e9"))
        assert broken != RULES
        (tmp_path / "alerts.yml").write_text(broken)
        tests = (MONITORING / "alerts_test.yml").read_text()
        (tmp_path / "alerts_test.yml").write_text(tests)
        done = subprocess.run(
            ["promtool", "test", "rules", "alerts_test.yml"],
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        assert done.returncode != 0, number
