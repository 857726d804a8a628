import socket

from inferd.backend.capabilities import (
    AcceleratorInfo,
    AcceleratorKind,
    BackendCapabilities,
)
from inferd.engine.supervisor.restart_policy import RestartDelay
from inferd.server.telemetry.setup import make_telemetry


def test_the_status_is_passed_on_to_the_service_manager(short_dir):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{short_dir}/notify")
        manager.setblocking(False)
        board, notifier, *_ = make_telemetry({"NOTIFY_SOCKET": f"{short_dir}/notify"})
        board.all_ready()
        notifier.ready()
        assert [manager.recv(100) for _ in range(2)] == [b"STATUS=ready", b"READY=1"]


def test_worker_deaths_on_the_board_are_counted():
    board, _, metrics, _ = make_telemetry({})
    board.died("chat", "gone", RestartDelay(0.5, breaker_is_open=False))
    assert 'inferd_worker_deaths_total{backend="chat"} 1.0' in metrics.text()


CARD = AcceleratorInfo(
    kind=AcceleratorKind.VULKAN,
    gpu_layers=7,
    device_name="Card",
    vram_total_bytes=3000,
    vram_free_bytes=200,
)


def test_the_accelerators_of_a_ready_backend_are_exported():
    board, _, metrics, _ = make_telemetry({})
    board.ready("none", BackendCapabilities())
    board.ready("chat", BackendCapabilities(accelerator=CARD))
    text = metrics.text()
    assert 'inferd_gpu_layers{backend="chat"} 7.0' in text
    memory = 'inferd_device_memory_bytes{backend="chat",kind='
    assert f'{memory}"total"}} 3000.0' in text
    assert f'{memory}"free"}} 200.0' in text
    assert 'backend="none"' not in text
