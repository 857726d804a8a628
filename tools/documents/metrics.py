"""The list of all metrics, from their definitions in ``inferd``."""

from collections.abc import Sequence
from typing import Final

from inferd.app import make_daemon
from inferd.config.settings import Config, ListenSettings
from inferd.server.telemetry.metric_registry import MetricDefinition, MetricRegistry
from inferd.server.telemetry.request_counts import RequestCounts
from inferd.server.telemetry.setup import make_telemetry
from tools.documents.markdown import NOTE, table

METRICS_INTRO: Final = """# Metrics

The command `metrics` on `admin.sock` gives them in Prometheus' text format; [the protocol](../protocol/README.md#commands-) has its reply.

```console
$ echo '{"command":"metrics"}' | nc -NU /run/inferd/admin.sock | jq -r 'select(.type == "reply").text'
```

Operators are root and the daemon's own user: they read all metrics.
Other users whom `access.admin` lets look on read those that name them below, which then count the user's own requests alone.

Values begin at 0 when the daemon starts, and those with labels are there once something was counted.
No label has a client's text.
A histogram has `_bucket` for each upper bound `le`, `_count` and `_sum`; of counters and histograms `_created` is when they began, in seconds since 1970.

"""
HEAD: Final = ("metric", "type", "unit", "labels", "meaning", "read by")


def metric_list() -> str:
    """Write one row for each metric that a daemon exports."""
    own = MetricRegistry()
    RequestCounts(own)
    rows = [
        cells(metric, "operators, users" if metric in own.definitions else "operators")
        for metric in exported()
    ]
    return NOTE + METRICS_INTRO + table(HEAD, rows)


def exported() -> Sequence[MetricDefinition]:
    """Give the metrics of a daemon; it is built, and never run."""
    telemetry = make_telemetry({})
    listen = ListenSettings(directory="/run/inferd")
    make_daemon(Config(listen=listen), [], telemetry)
    return telemetry.metrics.definitions


def cells(metric: MetricDefinition, readers: str) -> tuple[str, ...]:
    """Write a metric's row."""
    labels = "; ".join(f"`{label.name}`: {label.values}" for label in metric.labels)
    return f"`{metric.name}`", metric.kind, metric.unit, labels, metric.text, readers
