"""The whole path of an accelerator, on Mesa's software driver: `make test-vulkan`.

The driver computes on the processor, so nothing here is about speed.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

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

pytestmark = [pytest.mark.vulkan, pytest.mark.model, pytest.mark.slow]

INFERD: Final = (sys.executable, "-m", "inferd")
VISIBLE: Final = {"GGML_VK_VISIBLE_DEVICES": "0"}
"""ggml leaves out drivers that compute on the processor unless their number is given."""
LAYERS: Final = 31
"""Of the embedded chat model: 30 blocks and the output."""
CHAT: Final = "embedded:chat"
HUGE: Final = 65536
"""Tokens that take more than the 2 GiB of the driver's heap."""


def backend(model: str = CHAT, **settings: Any) -> dict[str, Any]:
    return llamacpp(model, **{"n_ctx": 512, "prompt_cache_mb": 0} | settings)


def able(daemon: DaemonProcess) -> dict[str, Any]:
    with daemon.admin() as listener:
        frames = listener.until("ready")
    [found] = [each for each in frames if each["status"] == "capabilities"]
    return found


def placed(daemon: DaemonProcess) -> tuple[str, int]:
    found = able(daemon)
    return found["accelerator"], found["gpu_layers"]


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> tuple[str, int]:
    """The name of the device and the bytes of its memory, as another program tells them."""
    command = ["vulkaninfo"]  # which can write files to the directory it is started in
    text = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path_factory.mktemp("vulkaninfo"),
    ).stdout
    [name, *_] = re.findall(r"deviceName\s*= (.+)", text)
    [size, *_] = re.findall(r"memoryHeaps\[0\]:\s*size\s*= (\d+)", text)
    return name, int(size)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    config = {"backend": [backend(n_gpu_layers="auto", require_accelerator=True)]}
    with daemons() as make:
        yield make(config, environ=VISIBLE).start()


def test_all_layers_of_a_small_model_are_on_the_device(daemon):
    assert placed(daemon) == ("vulkan", LAYERS)


def test_capabilities_status_and_metrics_agree_with_the_driver(daemon, driver):
    name, n_bytes = driver
    found = able(daemon)
    assert (found["device_name"], found["vram_total_bytes"]) == (name, n_bytes)
    assert 0 < found["vram_free_bytes"] <= n_bytes
    command = [*INFERD, "status", "--directory", daemon.directory]
    status = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"vulkan ({name}, " in status
    assert f"of {n_bytes >> 20} MiB free after loading), gpu_layers {LAYERS}" in status
    with daemon.admin() as listener:
        listener.until("ready")
        text = listener.order("metrics")["text"]
    memory = 'inferd_device_memory_bytes{backend="chat",kind="total"}'
    [line] = [each for each in text.splitlines() if each.startswith(memory)]
    assert float(line.split()[-1]) == n_bytes


def test_doctor_agrees_with_the_driver(driver, tmp_path, monkeypatch):
    name, n_bytes = driver
    monkeypatch.setenv(*next(iter(VISIBLE.items())))
    path = tmp_path / "config.toml"
    path.write_text(to_toml({"backend": [backend(n_gpu_layers="all")]}))
    command = [*INFERD, "doctor", "--json", "--config", path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    [worker] = [
        each
        for each in json.loads(result.stdout)["findings"]
        if each["check"] == "worker[chat]"
    ]
    assert f"accelerator vulkan: {name}, " in worker["detail"]
    assert f"of {n_bytes >> 20} MiB free, gpu_layers {LAYERS}" in worker["detail"]


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
def test_so_many_layers_are_on_the_device(make_daemon: MakeDaemon, wanted):
    config = {"backend": [backend(n_gpu_layers=wanted)]}
    _, n_layers = placed(make_daemon(config, environ=VISIBLE).start())
    assert n_layers == wanted


def test_vectors_are_those_of_the_processor(make_daemon: MakeDaemon, tmp_path):
    path = str(write_tiny_bert(tmp_path / "embed.gguf"))
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


def test_what_does_not_fit_is_refused_with_what_would(make_daemon: MakeDaemon):
    config = {"backend": [backend(n_gpu_layers="all", n_ctx=HUGE)]}
    refusal = make_daemon(config, environ=VISIBLE).refusal()
    assert f"n_gpu_layers = all: {LAYERS} layers do not fit" in refusal
    [most] = re.findall(r"needed; (\d+) would", refusal)
    assert 0 < int(most) < LAYERS


def test_as_many_layers_as_fit_are_on_the_device(make_daemon: MakeDaemon):
    config = {"backend": [backend(n_gpu_layers="auto", n_ctx=HUGE)]}
    _, n_layers = placed(make_daemon(config, environ=VISIBLE).start())
    assert 0 < n_layers < LAYERS


def test_a_driver_without_a_device_is_a_failed_start_or_the_processor(
    make_daemon: MakeDaemon,
):
    required = backend(n_gpu_layers="auto", require_accelerator=True)
    refusal = make_daemon({"backend": [required]}).refusal()
    assert "require_accelerator: no accelerator" in refusal
    other = backend(n_gpu_layers="auto")
    assert placed(make_daemon({"backend": [other]}).start()) == ("cpu", 0)


def test_a_worker_that_died_comes_back_to_the_device(make_daemon: MakeDaemon):
    config = {"backend": [backend(n_gpu_layers="auto")]}
    daemon = make_daemon(config, environ=VISIBLE).start()
    [pid] = daemon.worker_pids()
    subprocess.run(["kill", "-KILL", str(pid)], check=True)
    assert eventually(lambda: pid not in daemon.worker_pids())
    assert placed(daemon) == ("vulkan", LAYERS)


def test_the_sandbox_of_the_device_keeps_networks_out(daemon):
    boxed = [
        json.loads(line)
        for line in daemon.log_file.read_text().splitlines()
        if '"worker.boxed"' in line
    ]
    assert [each["seccomp"] for each in boxed] == [True]
