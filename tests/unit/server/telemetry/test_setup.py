import socket

from inferd.engine.supervisor.restart_policy import RestartDelay
from inferd.server.telemetry.setup import make_telemetry


def test_the_status_is_passed_on_to_the_service_manager(short_dir):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{short_dir}/notify")
        manager.setblocking(False)
        board, notifier, _ = make_telemetry({"NOTIFY_SOCKET": f"{short_dir}/notify"})
        board.all_ready()
        notifier.ready()
        assert [manager.recv(100) for _ in range(2)] == [b"STATUS=ready", b"READY=1"]


def test_worker_deaths_on_the_board_are_counted():
    board, _, metrics = make_telemetry({})
    board.died("chat", "gone", RestartDelay(0.5, breaker_is_open=False))
    assert 'inferd_worker_deaths_total{backend="chat"} 1.0' in metrics.text()
