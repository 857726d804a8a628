"""The report as a person reads it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bench.figures import OURS

SIDES: Final = {
    OURS: "inferd",
    "peer": "llama-server",
    "raw": "llama.cpp alone",
    "peer_small_batch": "llama-server, batches of 32",
    "server_py": "server.py",
    "whisper_cli": "whisper-cli",
    "free": "inferd, not held",
    "peer_free": "llama-server, not held",
    "socket": "the daemon's socket",
    "remote": "the remote itself",
}
"""Names of the values that rounds hold, in the order of columns."""
COLUMNS: Final = (OURS, "peer", "raw")
FURTHER: Final = ("peer_small_batch", "whisper_cli")
"""Have a column where they were measured."""
NOTHING: Final = "n/a"
NOTES: Final = """\
Each value is the median of the rounds, with the least and the greatest below it.
A ratio is the daemon's value divided by the other's, made within each round; its median is shown.
A round is disturbed if processes that are none of the benchmark's used more than 0.15 cores meanwhile.
Servers that write are measured once they are idle after their start: for some seconds the daemon makes there what answers held to a grammar need.
"Reached over llama.cpp alone" is a goal over llama-server that the ratio beside it misses: it counts as reached where the daemon is that close to llama.cpp alone.
"""
AXES: Final = {
    "clients": ("Growth: clients at once", "clients"),
    "prompt_tokens": ("Growth: length of the prompt", "tokens"),
}


def as_markdown(report: Mapping[str, Any], plots: Sequence[str] = ()) -> str:
    """Write the report.

    Args:
        report: as ``report.json`` has it.
        plots: file names of pictures beside it.
    """
    parts = [
        "# Benchmark\n",
        "\n".join(facts(report)) + "\n",
        NOTES,
        *tables(report),
        *growth(report),
        *(f"![{name}]({name})\n" for name in plots),
        *shortcomings(report),
        "## Commands\n",
        *(f"```\n{command.strip()}\n```\n" for command in report["commands"]),
    ]
    return "\n".join(parts)


def facts(report: Mapping[str, Any]) -> Iterator[str]:
    """Say where and with what it was measured."""
    machine, settings = report["machine"], report["settings"]
    load = ", ".join(f"{each:.2f}" for each in machine["load_average"])
    yield f"- Machine: {machine.get('cpu', 'unknown')}, {machine['cores']} cores, {machine['memory_mb'] / 1000:.1f} GB, {machine['system']}; load {load} at the start."
    yield "- Versions: " + ", ".join(
        f"{name} {version}" for name, version in report["versions"].items()
    )
    yield f"- Began {report['began']}; {settings['rounds']} rounds, {settings['growth_rounds']} of growth, {settings['threads']} threads; took {report.get('seconds', 0) / 60:.1f} minutes."
    yield f"- Build flags of the library: `{' '.join(report['build_flags']['wheel'])}`."
    if settings["quick"]:
        yield "- **A quick run: it shows that everything runs, and measures nothing.**"


def tables(report: Mapping[str, Any]) -> Iterator[str]:
    """Write one table for each model."""
    measures = report["measures"]
    for model in (*report["models"], "none"):
        found = [each[model] for each in measures.values() if model in each]
        if not found:
            continue
        title = "No model" if model == "none" else model
        yield f"## {title}\n"
        yield table([each for each in found if "error" not in each])


def table(figures: Sequence[Mapping[str, Any]]) -> str:
    """Write the figures of one model."""
    others = [
        side for side in SIDES if any(f"ratio_{side}" in each for each in figures)
    ]
    columns = [*COLUMNS, *(side for side in FURTHER if side in others)]
    heads = [
        *("measure", "unit", *(SIDES[side] for side in columns)),
        *(f"÷ {SIDES[side]}" for side in others),
        *("goals", "disturbed"),
    ]
    rows = [
        row(each, columns, others) for figure in figures for each in with_also(figure)
    ]
    return grid(heads, rows)


def with_also(figure: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Give a figure, and what stands below it: other values of the same rounds."""
    yield figure
    for each in figure.get("also", {}).values():
        yield {**figure, **each, "goals": {}}


def row(
    figure: Mapping[str, Any], columns: Sequence[str], others: Sequence[str]
) -> list[str]:
    """Write one figure."""
    spreads = figure["spread"]
    return [
        *(figure["title"], figure["unit"]),
        *(spread_of(spreads.get(side)) for side in columns),
        *(spread_of(spreads.get(f"ratio_{side}")) for side in others),
        "<br>".join(goal_of(*each) for each in figure["goals"].items()) or NOTHING,
        f"{figure['disturbed_rounds']} of {figure['n_rounds']}",
    ]


def spread_of(spread: Mapping[str, float] | None) -> str:
    """Write a median and its ends."""
    if spread is None:
        return NOTHING
    return (
        f"**{number(spread['median'])}**<br>"
        f"{number(spread['min'])} … {number(spread['max'])}"
    )


def goal_of(of: str, goal: Mapping[str, Any]) -> str:
    """Write a goal and whether it was reached."""
    name = of.removeprefix("ratio_")
    what = ("÷ " if of != name else "") + SIDES[name]
    bounds = {"at_least": "≥", "at_most": "≤"}
    [(sign, bound)] = [(sign, goal[key]) for key, sign in bounds.items() if key in goal]
    word = {True: "reached", False: "**missed**", None: "not measured"}[goal["reached"]]
    if goal.get("reached_by") == "raw":
        word += f" over {SIDES['raw']}, ≥ {goal['or_ratio_raw_at_least']:g}"
    return f"{what} {sign} {bound:g}: {word}"


def number(value: float) -> str:
    """Write a number with as many digits as are worth reading."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004  # where digits end


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def growth(report: Mapping[str, Any]) -> Iterator[str]:
    """Write a table for each axis and model."""
    for axis, models in report["growth"].items():
        title, unit = AXES[axis]
        for model, places in models.items():
            yield f"## {title}, {model}\n"
            yield grid(
                [
                    unit,
                    *(f"{SIDES[side]}, tokens/s" for side in COLUMNS),
                    "÷ llama-server",
                    "÷ llama.cpp alone",
                ],
                [growth_row(place, each) for place, each in places.items()],
            )


def growth_row(place: str, figure: Mapping[str, Any]) -> list[str]:
    """Write one place on an axis."""
    if "error" in figure:
        return [place, *[NOTHING] * (len(COLUMNS) + 2)]
    medians = [figure[side] for side in COLUMNS]
    ratios = [figure["ratio_peer"], figure["ratio_raw"]]
    return [
        place,
        *(NOTHING if each is None else number(each) for each in (*medians, *ratios)),
    ]


def shortcomings(report: Mapping[str, Any]) -> Iterator[str]:
    """Say what was not measured, and why."""
    lines = [*report["unavailable"], *errors(report), *reasons(report)]
    if lines:
        yield "## Not measured\n"
        yield "\n".join(f"- {line}" for line in lines) + "\n"


def errors(report: Mapping[str, Any]) -> Iterator[str]:
    """List the measures that failed."""
    for key, models in report["measures"].items():
        for model, figure in models.items():
            if "error" in figure:
                yield f"{key} of {model}: {figure['error']}"


def reasons(report: Mapping[str, Any]) -> list[str]:
    """List the sides that have no value, each reason once."""
    return [
        *dict.fromkeys(
            f"{key}, {SIDES[side]}: {reason}."
            for key, models in report["measures"].items()
            for figure in models.values()
            for side, reason in figure.get("reasons", {}).items()
        )
    ]
