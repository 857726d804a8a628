"""The whole path of an accelerator, with the llama.cpp that is installed.

`make test-vulkan` runs them on Mesa's driver, which computes on the processor: nothing here is
about speed.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.accelerator.built import MIB, Driver
from tests.daemon.configuration import to_toml
from tests.daemon.fixtures import daemons
from tests.daemon.harness import (
    Connection,
    DaemonProcess,
    MakeDaemon,
    eventually,
    llamacpp,
)
from tests.model.tiny import write_tiny_bert
from tools.accelerator_trial.random_model import SHAPES

pytestmark = [pytest.mark.accelerator, pytest.mark.model, pytest.mark.slow]

INFERD: Final = (sys.executable, "-m", "inferd")
VISIBLE: Final = {"GGML_VK_VISIBLE_DEVICES": "0"}
"""ggml leaves out drivers that compute on the processor unless their number is given. With
CUDA it has no effect."""
SHAPE: Final = SHAPES["small"]
LAYERS: Final = SHAPE.n_layers + 1
"""The blocks and the output."""
TOKEN_BYTES: Final = 2 * 2 * SHAPE.kv_width * SHAPE.n_layers
"""Of keys and values in f16, which all layers keep of a token."""
HIDDEN: Final = {
    "VK_DRIVER_FILES": "/dev/null",
    "VK_ICD_FILENAMES": "/dev/null",
    "CUDA_VISIBLE_DEVICES": "",
}
"""No driver of Vulkan, and no device of CUDA."""
SMALL_BUFFERS: Final = {"GGML_VK_FORCE_MAX_BUFFER_SIZE": str(MIB)}
"""As of a driver of Vulkan that has no larger ones; others have no such limit."""
ONE_SLOT: Final = {"max_active": 1, "max_queued": 1}


def backend(model: Path, **settings: Any) -> dict[str, Any]:
    return llamacpp(str(model), **{"n_ctx": 512, "prompt_cache_mb": 0} | settings)


def too_large(model: Path, driver: Driver, n_gpu_layers: int | str) -> dict[str, Any]:
    """Configure a context that takes a little more than the memory of the device."""
    n_ctx = driver.n_bytes * 11 // 10 // TOKEN_BYTES
    placed = backend(model, n_gpu_layers=n_gpu_layers, n_ctx=n_ctx)
    return {"backend": [placed], "admission": ONE_SLOT}


def able(daemon: DaemonProcess) -> dict[str, Any]:
    with daemon.admin() as listener:
        frames = listener.until("ready")
    [found] = [each for each in frames if each["status"] == "capabilities"]
    return found


def placed(daemon: DaemonProcess) -> tuple[str, int]:
    found = able(daemon)
    return found["accelerator"], found["gpu_layers"]


@pytest.fixture(scope="module")
def daemon(model) -> Iterator[DaemonProcess]:
    required = backend(model, n_gpu_layers="auto", require_accelerator=True)
    config = {"backend": [required]}
    with daemons() as make:
        yield make(config, environ=VISIBLE).start()


def test_all_layers_of_a_small_model_are_on_the_device(daemon, kind):
    assert placed(daemon) == (kind, LAYERS)


def test_capabilities_status_and_metrics_agree_with_the_driver(daemon, kind, driver):
    found = able(daemon)
    n_bytes = found["vram_total_bytes"]
    assert found["device_name"] == driver.name
    assert driver.agrees(n_bytes)
    assert 0 < found["vram_free_bytes"] <= n_bytes
    command = [*INFERD, "status", "--directory", daemon.directory]
    status = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{kind} ({driver.name}, " in status
    assert f"of {n_bytes >> 20} MiB free after loading), gpu_layers {LAYERS}" in status
    with daemon.admin() as listener:
        listener.until("ready")
        text = listener.order("metrics")["text"]
    memory = 'inferd_device_memory_bytes{backend="chat",kind="total"}'
    [line] = [each for each in text.splitlines() if each.startswith(memory)]
    assert float(line.split()[-1]) == n_bytes


def test_doctor_agrees_with_the_driver(model, kind, driver, tmp_path, monkeypatch):
    monkeypatch.setenv(*next(iter(VISIBLE.items())))
    path = tmp_path / "config.toml"
    path.write_text(to_toml({"backend": [backend(model, n_gpu_layers="all")]}))
    command = [*INFERD, "doctor", "--json", "--config", path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    [worker] = [
        each
        for each in json.loads(result.stdout)["findings"]
        if each["check"] == "worker[chat]"
    ]
    assert f"accelerator {kind}: {driver.name}, " in worker["detail"]
    [n_mib] = re.findall(rf"of (\d+) MiB free, gpu_layers {LAYERS}\b", worker["detail"])
    assert driver.agrees(int(n_mib) * MIB)


def test_an_answer_comes_from_the_device(daemon):
    with daemon.connect() as client:
        frames = client.ask(
            {
                "messages": [{"role": "user", "content": "What is 2 and 2?"}],
                "max_tokens": 8,
                "temperature": 0,
            }
        )
    assert frames[-1]["type"] == "done"
    assert frames[-1]["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("wanted", [0, 7])
def test_so_many_layers_are_on_the_device(make_daemon: MakeDaemon, model, wanted):
    config = {"backend": [backend(model, n_gpu_layers=wanted)]}
    _, n_layers = placed(make_daemon(config, environ=VISIBLE).start())
    assert n_layers == wanted


def test_vectors_are_those_of_the_processor(make_daemon: MakeDaemon, tmp_path):
    path = write_tiny_bert(tmp_path / "embed.gguf")
    vectors = []
    for n_layers in (0, "all"):
        config = {"backend": [backend(path, n_gpu_layers=n_layers)]}
        made = make_daemon(config, environ=VISIBLE)
        made.spawn()
        with made.admin() as listener:
            listener.until("ready")
        with Connection(made.directory / "infer.embed.sock") as client:
            client.send({"input": ["The weather is fine today."]})
            vectors.append(np.array(client.frame()["embeddings"][0]))
        made.stop()
    one, other = vectors
    assert one @ other / (np.linalg.norm(one) * np.linalg.norm(other)) > 0.999


def test_what_does_not_fit_is_refused_with_what_would(
    make_daemon: MakeDaemon, model, driver
):
    config = too_large(model, driver, "all")
    refusal = make_daemon(config, environ=VISIBLE).refusal()
    assert f"n_gpu_layers = all: {LAYERS} layers do not fit" in refusal
    [most] = re.findall(r"needed; (\d+) would", refusal)
    assert 0 < int(most) < LAYERS


def test_a_cache_that_the_driver_cannot_compute_with_is_refused_if_there_is_such(
    make_daemon: MakeDaemon, model, kind
):
    config = {
        "backend": [backend(model, n_gpu_layers="all", n_ctx=2048)],
        "admission": ONE_SLOT,
    }
    made = make_daemon(config, environ=VISIBLE | SMALL_BUFFERS)
    if kind != "vulkan":
        assert placed(made.start()) == (kind, LAYERS)
        return
    refusal = made.refusal()
    assert "needs a tensor of 2 MiB in the KV cache of a layer" in refusal
    assert "with 1 MiB at most; n_ctx = 1024 would do" in refusal


def test_as_many_layers_as_fit_are_on_the_device(
    make_daemon: MakeDaemon, model, driver
):
    config = too_large(model, driver, "auto")
    _, n_layers = placed(make_daemon(config, environ=VISIBLE).start())
    assert 0 < n_layers < LAYERS


def test_a_driver_without_a_device_is_a_failed_start_or_the_processor(
    make_daemon: MakeDaemon, model
):
    required = backend(model, n_gpu_layers="auto", require_accelerator=True)
    refusal = make_daemon({"backend": [required]}, environ=HIDDEN).refusal()
    assert "require_accelerator: no accelerator" in refusal
    other = {"backend": [backend(model, n_gpu_layers="auto")]}
    assert placed(make_daemon(other, environ=HIDDEN).start()) == ("cpu", 0)


def test_a_worker_that_died_comes_back_to_the_device(
    make_daemon: MakeDaemon, model, kind
):
    config = {"backend": [backend(model, n_gpu_layers="auto")]}
    daemon = make_daemon(config, environ=VISIBLE).start()
    [pid] = daemon.worker_pids()
    subprocess.run(["kill", "-KILL", str(pid)], check=True)
    assert eventually(lambda: pid not in daemon.worker_pids())
    assert placed(daemon) == (kind, LAYERS)


def test_the_sandbox_of_the_device_keeps_networks_out(daemon):
    boxed = daemon.logged(msg="worker.boxed")
    assert [each["seccomp"] for each in boxed] == [True]
