import socket

from inferd.engine.restart import Pause
from inferd.server.audience import gather


def test_what_the_board_hears_is_told_to_the_service_manager(short_dir):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{short_dir}/notify")
        manager.setblocking(False)
        board, notifier, _ = gather({"NOTIFY_SOCKET": f"{short_dir}/notify"})
        board.all_ready()
        notifier.ready()
        assert [manager.recv(100) for _ in range(2)] == [b"STATUS=ready", b"READY=1"]


def test_the_deaths_that_the_board_hears_of_are_counted():
    board, _, metrics = gather({})
    board.died("chat", "gone", Pause(0.5, breaker_is_open=False))
    assert 'inferd_worker_deaths_total{backend="chat"} 1.0' in metrics.text()
