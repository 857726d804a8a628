"""The trial of accelerators: what is cut off goes on, and what fails says why."""

import json
import os
import select
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from gguf import GGUFReader

from bench.lab import Sizes
from tools.accelerator_trial.archive import requirements
from tools.accelerator_trial.benching import QUICK, Extent, kept_figures
from tools.accelerator_trial.build import progress, reason, use_wheels
from tools.accelerator_trial.markdown import TITLES, markdown
from tools.accelerator_trial.random_model import Shape, write_random_model
from tools.accelerator_trial.workspace import (
    CutOffError,
    Deadline,
    TrialError,
    Workspace,
    run_until,
)

TINY: Final = Shape(2, 64, 128, 2, 1, 400, n_ctx=256)
BOUND_S: Final = 60.0
NO_NVCC: Final = """
  -- Including CPU backend
  -- Could not find nvcc, please set CUDAToolkit_ROOT.
  CMake Error at vendor/llama.cpp/ggml/src/ggml-cuda/CMakeLists.txt:264 (message):
    CUDA Toolkit not found


  -- Configuring incomplete, errors occurred!
  error: subprocess-exited-with-error
"""


@pytest.fixture
def work(tmp_path) -> Workspace:
    return Workspace(tmp_path, "vulkan")


def test_a_command_that_ends_in_time_gives_its_status(tmp_path):
    command = [sys.executable, "-c", "print('said'); raise SystemExit(7)"]
    assert run_until(command, Deadline.after(3600), tmp_path / "log") == 7
    assert (tmp_path / "log").read_text() == "said\n"


class WhenWritten(Deadline):
    """A time that is over as soon as something is written."""

    @property
    def left_s(self) -> float:
        written, _, _ = select.select([int(self.at)], [], [])
        return float(not written)


def test_a_command_that_does_not_end_is_ended_with_what_it_started(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writes = f"f = open({str(fifo)!r}, 'wb', 0); f.write(b'x'); import signal; signal.pause()"
    program = f"import subprocess as s, sys; s.run([sys.executable, '-c', {writes!r}])"
    held = os.open(fifo, os.O_RDWR)  # so that nobody reads its end before a writer came
    reader = os.open(fifo, os.O_RDONLY)
    command = [sys.executable, "-c", program]
    assert run_until(command, WhenWritten(reader), tmp_path / "log") is None
    os.close(held)
    assert os.read(reader, 9) == b"x"
    ended, _, _ = select.select([reader], [], [], BOUND_S)
    assert ended  # no process has it open
    assert os.read(reader, 9) == b""
    os.close(reader)


def test_time_that_is_over_is_told_with_how_far_the_step_is():
    Deadline.after(3600).check("nothing")
    with pytest.raises(CutOffError, match="3 of 9"):
        Deadline.after(0).check("3 of 9")


def test_a_build_says_how_far_it_is():
    assert progress("  [1/9] one\n  [2/9] two\nno step [8/9]\n") == "2 of 9 steps"
    assert progress("Preparing metadata\n") == "nothing yet"


def test_what_cmake_misses_is_told_in_its_words():
    told = reason(NO_NVCC)
    assert "ggml-cuda/CMakeLists.txt:264" in told
    assert "CUDA Toolkit not found" in told
    assert "subprocess-exited" not in told
    assert "g++: fatal error: killed" in reason("fine\ng++: fatal error: killed\n")


def test_a_directory_without_the_archive_is_told(work):
    with pytest.raises(TrialError, match="unpack trial"):
        use_wheels(work)


def test_the_report_keeps_each_part_and_is_written_for_people(work):
    work.add_to_report(
        "steps", {"build": {"outcome": "done", "calls": 2, "seconds": 700.4}}
    )
    work.add_to_report("tests", {"tests/a.py::test_one": "failed\nfor a reason"})
    placed = {
        "accelerator": "cuda",
        "device_name": "Some card",
        "vram_total_bytes": 9 << 20,
        "vram_free_bytes": 5 << 20,
        "gpu_layers": 29,
    }
    figure = {"accelerator": 100.0, "processor": 8.0, "ratio": 12.5}
    bench = {
        "model": "llama-3b",
        "model_bytes": 3_800_000_000,
        "accelerator": placed,
        "figures": dict.fromkeys(TITLES, figure),
    }
    work.add_to_report("bench", bench)
    assert work.part("tests") == {"tests/a.py::test_one": "failed\nfor a reason"}
    text = markdown(work.report())
    for line in (
        "| build | done | 2 | 700 |",
        "| `test_one` | failed |",
        "Device: Some card (cuda), 9 MiB, 5 free after loading, 29 layers.",
        "| reading a new prompt, tokens/s | 100 | 8 | 12.5 |",
    ):
        assert line in text.splitlines()


def test_figures_of_another_model_or_size_are_not_gone_on_with():
    how = Extent("tiny", n_rounds=3, sizes=Sizes())
    figures = kept_figures({}, how)
    figures["rounds"]["prefill.processor"] = [1.0]
    again = json.loads(json.dumps(figures))
    assert kept_figures(again, how) == figures
    for other in (replace(how, shape="small"), replace(how, sizes=QUICK)):
        assert kept_figures(again, other)["rounds"] == {}


def test_no_other_binding_travels_than_the_one_that_is_built():
    assert not any(each.startswith("llama-cpp-python") for each in requirements())
    assert any(each.startswith("pytest") for each in requirements())


def test_the_same_seed_gives_the_same_model_and_another_gives_another(tmp_path):
    files = [
        write_random_model(tmp_path / f"{number}.gguf", TINY, seed).read_bytes()
        for number, seed in enumerate((0, 0, 1))
    ]
    assert files[0] == files[1] != files[2]


def test_bytes_and_special_tokens_are_never_the_likeliest(tmp_path):
    reader = GGUFReader(write_random_model(tmp_path / "model.gguf", TINY))
    tensors = {each.name: each for each in reader.tensors}
    assert len(tensors) == 3 + 9 * TINY.n_layers
    output = np.asarray(tensors["output.weight"].data)
    scales = output.reshape(TINY.n_vocab, -1, 34)[:, :, :2]
    n_silent = 256 + 5
    assert not scales[:n_silent].any()
    assert scales[n_silent:].any(axis=2).all()


def test_a_trial_keeps_to_its_own_directory(tmp_path: Path):
    work = Workspace(tmp_path, "cuda")
    for path in (work.build, work.built, work.environment, work.source, work.wheels):
        assert path.is_relative_to(tmp_path)
