"""llama.cpp without a server: its own two benchmarks."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.lab import Lab
from bench.peers.build import tool


def bench_rate(lab: Lab, *, n_prompt: int = 0, n_tokens: int = 0) -> float:
    """Have ``llama-bench`` read a prompt or write tokens once; give tokens per second."""
    shape = ("--n-prompt", str(n_prompt), "--n-gen", str(n_tokens))
    ending = ("--repetitions", "1", "--output", "json")
    told = run_tool(lab, "llama-bench", (*shape, *ending))
    [test] = json.loads(told)
    return float(test["avg_ts"])


def batched(
    lab: Lab, *, n_clients: int, n_prompt: int, n_tokens: int
) -> dict[str, Any]:
    """Have ``llama-batched-bench`` write several answers at once; give what it tells."""
    n_ctx = n_clients * (n_prompt + n_tokens)
    shape = (
        *("-npp", str(n_prompt), "-ntg", str(n_tokens), "-npl", str(n_clients)),
        *("--ctx-size", str(n_ctx), "--output-format", "jsonl"),
    )
    told = run_tool(lab, "llama-batched-bench", shape)
    [result] = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    return dict(result)


def run_tool(lab: Lab, name: str, options: Sequence[str]) -> str:
    """Run a tool on the model; give what it prints."""
    command = [
        *(str(tool(name)), "--model", str(lab.model.path)),
        *("--threads", str(lab.n_threads)),
        *("--n-gpu-layers", str(lab.n_gpu_layers), *options),
    ]
    lab.note(command)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{Path(command[0]).name} failed:\n{result.stderr[-2000:]}")
    return result.stdout
