"""Metrics that are exported together, and what a list of them tells."""

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

PREFIX: Final = "inferd_"
UNITS: Final = ("bytes", "seconds")
"""Units other than a plain number; a metric's name ends with its own, as Prometheus asks."""


class Label(NamedTuple):
    """The name of a label, and its values in words."""

    name: str
    values: str


SOCKET: Final = Label("socket", "file name of the socket")
BACKEND: Final = Label("backend", "name of the backend")


class MetricDefinition(NamedTuple):
    """What is known of a metric before anything is counted.

    Attributes:
        name: as it is exported.
        kind: its type in Prometheus' sense.
        text: its help text.
        labels: of each of its values.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[Label, ...]

    @property
    def unit(self) -> str:
        """The unit of its values."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in UNITS else "number"


class MetricRegistry:
    """Defines metrics, keeps their definitions and renders their values.

    Names are given without ``inferd_``, and those of counters without ``_total``.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._definitions: list[MetricDefinition] = []

    @property
    def definitions(self) -> Sequence[MetricDefinition]:
        """All metrics, in the order in which they are exported."""
        return self._definitions

    def counter(self, name: str, text: str, *labels: Label) -> Counter:
        """Define a number that only grows."""
        name = PREFIX + name
        definition = MetricDefinition(f"{name}_total", "counter", text, labels)
        return Counter(name, text, self._add(definition), registry=self._registry)

    def gauge(self, name: str, text: str, *labels: Label) -> Gauge:
        """Define a number that is set."""
        name = PREFIX + name
        definition = MetricDefinition(name, "gauge", text, labels)
        return Gauge(name, text, self._add(definition), registry=self._registry)

    def watched_gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Define a number that is read whenever the metrics are."""
        self.gauge(name, text).set_function(read)

    def histogram(
        self, name: str, text: str, *labels: Label, buckets: Sequence[float]
    ) -> Histogram:
        """Define a distribution of numbers by upper bounds."""
        name = PREFIX + name
        names = self._add(MetricDefinition(name, "histogram", text, labels))
        return Histogram(name, text, names, buckets=buckets, registry=self._registry)

    def text(self) -> str:
        """Render all metrics in Prometheus' text format."""
        return generate_latest(self._registry).decode()

    def _add(self, definition: MetricDefinition) -> list[str]:
        self._definitions.append(definition)
        return [label.name for label in definition.labels]
