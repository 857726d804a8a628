"""The report's files: JSON for programs, Markdown with plots for people."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.markdown import as_markdown
from bench.plots import draw


def write_report(report: Mapping[str, Any], directory: Path) -> None:
    """Write ``report.json``, ``report.md`` and the plots that it shows."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    plots = draw(report, directory)
    (directory / "report.md").write_text(as_markdown(report, plots))
