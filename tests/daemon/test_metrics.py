"""The list of metrics, docs/metrics.md, beside what a daemon exports."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from inferd.server.telemetry.metrics import Metrics
from tests.daemon.harness import DaemonProcess, MakeDaemon, generate, mock

LIST = Path(__file__).parents[2] / "docs" / "metrics.md"
ANNA = 70_001
OF_HISTOGRAMS = {"le"}


class Listed(NamedTuple):
    kind: str
    labels: frozenset[str]
    text: str
    readers: str


def listed() -> dict[str, Listed]:
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in LIST.read_text().splitlines()
        if line.startswith("| `inferd_")
    ]
    return {
        name.strip("`"): Listed(
            kind, frozenset(re.findall(r"`(\w+)`:", labels)), text, readers
        )
        for name, kind, _, labels, text, readers in rows
    }


def exported(text: str) -> dict[str, tuple[str, str]]:
    """Give types and help texts; a family is there before anything is counted."""
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\S+) (.*)$", text, re.MULTILINE))
    return {
        name: (kinds[name], helps[name])
        for name in kinds
        if not name.endswith("_created")
    }


def labels_of(text: str) -> Iterator[tuple[str, set[str]]]:
    """Give the names of the labels of every value that is there."""
    for family in text_string_to_metric_families(text):
        suffix = "_total" if family.type == "counter" else ""
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                yield family.name + suffix, set(sample.labels) - OF_HISTOGRAMS


def scrape(daemon: DaemonProcess) -> str:
    return str(daemon.admin().order("metrics")["text"])


def test_a_daemon_exports_the_metrics_that_are_listed_and_no_other(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon({"backend": [mock(tokens=["a"])]}).start()
    with daemon.connect() as client:
        assert client.ask(generate())[-1]["type"] == "done"
        assert client.ask({"messages": []})[-1]["type"] == "error"
    daemon.kill_worker()
    assert daemon.logged(msg="worker.exited")
    text = scrape(daemon)
    rows = listed()
    assert exported(text) == {name: (row.kind, row.text) for name, row in rows.items()}
    told = dict(labels_of(text))
    assert {"inferd_tokens_total", "inferd_worker_deaths_total"} < told.keys()
    assert told == {name: rows[name].labels for name in told}


def test_a_user_reads_the_metrics_that_are_listed_for_users():
    own = exported(Metrics().text_of(ANNA))
    assert own.keys() == {
        name for name, row in listed().items() if row.readers == "operators, users"
    }
