"""The report's plots, as SVG.

matplotlib draws them: logarithmic axes and spreads are its everyday work, and its SVG
needs no script to be looked at. Only this module imports it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.figures import OURS
from bench.markdown import AXES, COLUMNS, SIDES

COLOURS: Final = {OURS: "#1b6ca8", "peer": "#d1603d", "raw": "#7a7a7a"}
WIDTH_IN: Final = 6.4
HEIGHT_IN: Final = 3.8
SETTINGS: Final[dict[Any, Any]] = {
    "svg.hashsalt": "inferd",  # the same figures give the same file
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
RATIOS: Final = ("ratio_peer", "ratio_raw")


def draw(report: Mapping[str, Any], directory: Path) -> list[str]:
    """Draw what there is; give the names of the files."""
    with mpl.rc_context(SETTINGS):
        figures = dict([*growth_plots(report), *ratio_plots(report)])
        for name, figure in figures.items():
            figure.savefig(directory / name, metadata={"Date": None})
    return [*figures]


def growth_plots(report: Mapping[str, Any]) -> Iterator[tuple[str, Figure]]:
    """Draw speed along each axis, for each model."""
    for axis, models in report["growth"].items():
        for model, places in models.items():
            known = {
                int(place): each for place, each in places.items() if "spread" in each
            }
            if known:
                yield f"growth-{axis}-{model}.svg", growth_plot(axis, model, known)


def growth_plot(axis: str, model: str, places: Mapping[int, Any]) -> Figure:
    """Draw a line for each side, with the spread of its rounds."""
    title, unit = AXES[axis]
    figure, axes = canvas(f"{title}, {model}")
    for side in COLUMNS:
        points = {
            place: each["spread"][side]
            for place, each in places.items()
            if side in each["spread"]
        }
        medians = [each["median"] for each in points.values()]
        below = [each["median"] - each["min"] for each in points.values()]
        above = [each["max"] - each["median"] for each in points.values()]
        axes.errorbar(
            [*points],
            medians,
            yerr=[below, above],
            label=SIDES[side],
            color=COLOURS[side],
            marker="o",
            markersize=4,
            capsize=3,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks([*places], labels=[str(place) for place in places])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(unit)
    axes.set_ylabel("tokens/s")
    axes.legend(frameon=False)
    return figure


def ratio_plots(report: Mapping[str, Any]) -> Iterator[tuple[str, Figure]]:
    """Draw how the daemon compares where more is better, for each model."""
    for model in report["models"]:
        figures = {
            key: each[model]
            for key, each in report["measures"].items()
            if model in each and each[model].get("more_is_better")
        }
        drawn = {key: each for key, each in figures.items() if "spread" in each}
        if any(name in each["spread"] for each in drawn.values() for name in RATIOS):
            yield f"ratios-{model}.svg", ratio_plot(model, drawn)


def ratio_plot(model: str, figures: Mapping[str, Any]) -> Figure:
    """Draw a point for each ratio, with its spread."""
    figure, axes = canvas(f"inferd divided by the others, {model}; more is better")
    for offset, name in zip((0.12, -0.12), RATIOS, strict=True):
        side = name.removeprefix("ratio_")
        spreads = [each["spread"].get(name) for each in figures.values()]
        known = [(row, each) for row, each in enumerate(spreads) if each]
        medians = [each["median"] for _, each in known]
        axes.errorbar(
            medians,
            [row + offset for row, _ in known],
            xerr=[
                [each["median"] - each["min"] for _, each in known],
                [each["max"] - each["median"] for _, each in known],
            ],
            fmt="o",
            label=SIDES[side],
            color=COLOURS[side],
            capsize=3,
        )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(figures)), labels=[*figures])
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    axes.legend(frameon=False)
    return figure


def canvas(title: str) -> tuple[Figure, Axes]:
    """Make room to draw, without a window."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    return figure, axes
