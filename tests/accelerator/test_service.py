"""The installed service on Mesa's driver: the real unit with gpu.conf, under a real systemd.

`make test-vulkan` runs it, with the options that `make install` builds llama.cpp with.
"""

import json
import re
from typing import Final

import pytest

from tests.accelerator.built import MIB, Driver
from tests.daemon.configuration import to_toml
from tests.daemon.harness import llamacpp
from tests.systemd.container import (
    ROOT,
    Container,
    booted,
    install,
    missing,
    overlay,
)
from tools.accelerator_trial.random_model import SHAPES, write_random_model

REASON: Final = missing()
pytestmark = [
    pytest.mark.accelerator,
    pytest.mark.systemd,
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.skipif(bool(REASON), reason=f"no container: {REASON}"),
]

SHAPE: Final = SHAPES["tiny"]
LAYERS: Final = SHAPE.n_layers + 1
MODEL: Final = "/opt/model.gguf"
DROP_INS: Final = "etc/systemd/system/inferd.service.d"
INFERD: Final = "/usr/local/bin/inferd"
VISIBLE: Final = "GGML_VK_VISIBLE_DEVICES=0"
"""ggml leaves out drivers that compute on the processor unless their number is given."""
REQUEST: Final = {
    "id": "a",
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 4,
    "stream": False,
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A machine whose service has a model on the device."""
    required = llamacpp(
        MODEL, name="chat", n_ctx=512, n_gpu_layers="auto", require_accelerator=True
    )
    with overlay(tmp_path_factory.mktemp("machine")) as root:
        install(root)
        write_random_model(root / MODEL.lstrip("/"), SHAPE).chmod(0o644)
        config = root / "etc/inferd/config.toml"
        config.parent.mkdir(exist_ok=True)
        config.write_text(to_toml({"backend": [required]}))
        config.chmod(0o644)
        (root / DROP_INS).mkdir(parents=True)
        gpu = (ROOT / "systemd/gpu.conf").read_text()
        (root / DROP_INS / "gpu.conf").write_text(gpu)
        (root / DROP_INS / "processors.conf").write_text(
            f"[Service]\nEnvironment={VISIBLE}\n"
        )
        with booted(root) as container:
            container.run("systemctl", "start", "inferd", check=False, timeout_s=300.0)
            yield container


def answer(machine: Container, socket: str, request: object) -> str:
    command = ("nc", "-N", "-U", f"/run/inferd/{socket}")
    text = json.dumps(request) + "\n"
    return machine.run(*command, stdin=text, timeout_s=300.0).stdout


def test_the_service_answers_with_all_layers_on_the_device(machine):
    state = machine.run("systemctl", "status", "inferd", check=False).stdout
    assert "active (running)" in state, state
    frame = json.loads(answer(machine, "infer.sock", REQUEST))
    assert (frame["type"], frame["usage"]["completion_tokens"]) == ("done", 4)


def agrees(text: str, driver: Driver) -> bool:
    """Tell whether a text has all layers on the driver's device, with its memory."""
    found = re.search(rf"of (\d+) MiB free\b.*, gpu_layers {LAYERS}\b", text)
    return found is not None and driver.agrees(int(found[1]) * MIB)


def test_status_and_doctor_agree_with_the_driver(machine, driver: Driver):
    status = machine.run(INFERD, "status").stdout
    assert f"vulkan ({driver.name}, " in status
    assert agrees(status, driver), status
    command = ("env", VISIBLE, INFERD, "doctor", "--system", "--json")
    doctor = machine.run(*command, check=False, timeout_s=300.0).stdout
    found = {each["check"]: each for each in json.loads(doctor)["findings"]}
    assert found["driver"]["verdict"] != "failed", found["driver"]  # it has no nodes
    worker = found["worker[chat]"]["detail"]
    assert f"accelerator vulkan: {driver.name}, " in worker
    assert agrees(worker, driver), worker
