"""The report for people."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

TITLES: Final = {
    "prefill": "reading a new prompt, tokens/s",
    "single_stream": "one answer, tokens/s",
    "clients_8": "eight answers at once, tokens/s",
}


def markdown(report: Mapping[str, Mapping[str, Any]]) -> str:
    """Write the report of all backends."""
    lines = ["# Trial with an accelerator"]
    for backend, parts in report.items():
        lines += ["", f"## {backend}", "", *of_backend(parts)]
    return "\n".join(lines) + "\n"


def of_backend(parts: Mapping[str, Any]) -> Iterator[str]:
    """Write the lines of one backend."""
    yield from of_steps(parts.get("steps", {}))
    outcomes = parts.get("tests", {})
    if outcomes:
        yield ""
        yield "| test | |"
        yield "| --- | --- |"
        for name, outcome in outcomes.items():
            yield f"| `{name.rpartition('::')[2]}` | {outcome.splitlines()[0]} |"
    if "figures" in parts.get("bench", {}):
        yield from of_bench(parts["bench"])


def of_steps(steps: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Write what became of each step."""
    yield "| step | | calls | seconds |"
    yield "| --- | --- | --- | --- |"
    for name, each in steps.items():
        first = " ".join(str(each["outcome"]).splitlines()[:3])
        yield f"| {name} | {first} | {each['calls']} | {each['seconds']:.0f} |"


def of_bench(bench: Mapping[str, Any]) -> Iterator[str]:
    """Write the devices and the figures."""
    placed = bench["accelerator"]
    yield ""
    n_gb = bench["model_bytes"] / 1e9
    yield f"Model: random weights in the shape of {bench['model']}, {n_gb:.3g} GB, Q8_0."
    total, free = (
        placed.get(f"vram_{kind}_bytes", 0) >> 20 for kind in ("total", "free")
    )
    yield (
        f"Device: {placed.get('device_name', '')} ({placed.get('accelerator', '')}), "
        f"{total} MiB, {free} free after loading, {placed.get('gpu_layers', 0)} layers."
    )
    yield ""
    yield "| | accelerator | processor | ratio |"
    yield "| --- | --- | --- | --- |"
    for name, title in TITLES.items():
        figure = bench["figures"][name]
        values = " | ".join(
            f"{figure[key]:.4g}" for key in ("accelerator", "processor", "ratio")
        )
        yield f"| {title} | {values} |"
