"""The description of a gauge: a number that a metrics exporter reads."""

from collections.abc import Callable

GaugeSpec = tuple[str, str, Callable[[], float]]
"""A gauge's name, its help text, and the function that reads it."""
