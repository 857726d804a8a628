"""Where a trial keeps what it makes, and how much time a call has."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Backend = str
"""``cuda`` or ``vulkan``."""

CUT_OFF: Final = 3
"""Exit status of a step that has to be called again."""
STOP_S: Final = 20.0
"""Seconds that a compiler or a test gets to end."""


class TrialError(Exception):
    """A step cannot be done; the text says why and what helps."""


class CutOffError(Exception):
    """The time of this call is over; the text says how far the step is."""


@dataclass(frozen=True)
class Workspace:
    """The directory of a trial, in which the archive was unpacked."""

    path: Path
    backend: Backend

    @property
    def wheels(self) -> Path:
        """The pinned wheels."""
        return self.path / "wheels"

    @property
    def source(self) -> Path:
        """The sources of the binding, with llama.cpp's."""
        return self.path / "source" / "llama_cpp_python"

    @property
    def headers(self) -> Path:
        """Headers of Vulkan."""
        return self.path / "headers"

    @property
    def build(self) -> Path:
        """What CMake and ninja make, kept between calls."""
        return self.path / f"build-{self.backend}"

    @property
    def built(self) -> Path:
        """Directory of the finished wheel."""
        return self.path / f"built-{self.backend}"

    @property
    def environment(self) -> Path:
        """The environment of Python that tests and figures run in."""
        return self.path / f"environment-{self.backend}"

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.environment / "bin" / "python"

    @property
    def build_tools(self) -> Path:
        """The environment with CMake, ninja and scikit-build-core."""
        return self.path / "build-tools"

    @property
    def built_wheel(self) -> Path | None:
        """The finished wheel, if there is one."""
        return next(iter(self.built.glob("*.whl")), None)

    @property
    def report_file(self) -> Path:
        """The report for programs."""
        return self.path / "report.json"

    def report(self) -> dict[str, Any]:
        """Read the report so far."""
        try:
            found: dict[str, Any] = json.loads(self.report_file.read_text())
        except FileNotFoundError:
            return {}
        return found

    def add_to_report(self, part: str, value: object) -> None:
        """Replace one part of this backend's report."""
        report = self.report()
        report.setdefault(self.backend, {})[part] = value
        made = self.report_file.with_suffix(".new")
        made.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
        made.replace(self.report_file)

    def part(self, name: str) -> Any:
        """Read one part of this backend's report; ``None`` if it is not there."""
        return self.report().get(self.backend, {}).get(name)


@dataclass(frozen=True)
class Deadline:
    """The end of a call."""

    at: float
    """Of the monotonic clock."""

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Set the end of a call that begins now."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 if it is over."""
        return max(0.0, self.at - time.monotonic())

    def check(self, progress: str) -> None:
        """Check that there is time for more.

        Raises:
            CutOffError: there is none.
        """
        if not self.left_s:
            raise CutOffError(progress)


def run_until(
    command: Sequence[str],
    deadline: Deadline,
    log: Path,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> int | None:
    """Run a command with all it starts; end it when the time is over.

    Args:
        command: the command line.
        deadline: when it is ended, with SIGTERM first.
        log: where its output goes.
        environ: its environment.
        cwd: the directory to start it in.

    Returns:
        Its exit status, or ``None`` if it was ended.
    """
    with (
        log.open("w") as output,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            cwd=cwd,
            start_new_session=True,
        ) as process,
    ):
        try:
            return process.wait(deadline.left_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def say(text: str) -> None:
    """Tell the person who waits."""
    print(f"[trial] {text}", file=sys.stderr, flush=True)
