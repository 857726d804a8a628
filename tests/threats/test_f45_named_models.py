from pathlib import Path

import pytest

from tests.daemon.harness import (
    Connection,
    DaemonProcess,
    MakeDaemon,
    eventually,
    generate,
    mock,
)
from tests.unit.models.store.stores import add_model, open_store

pytestmark = pytest.mark.slow

N_MODELS = 6
N_CLIENTS = 24
BROKEN = b"GGUF and nothing else"


def serving(make_daemon: MakeDaemon, scratch: Path, **admission: int) -> DaemonProcess:
    """Start a daemon that serves models of a store which no worker can read."""
    store = open_store(scratch / "models")
    for number in range(N_MODELS):
        add_model(store, f"team/m{number}", BROKEN)
    config = {
        "backend": [mock()],
        "models": {"serve": True},
        "admission": {"max_active": 1, **admission},
    }
    environ = {"INFERD_MODELS": str(store.directory.path)}
    return make_daemon(config, environ=environ).start()


def flood(daemon: DaemonProcess, names: list[str]) -> list[Connection]:
    clients = [daemon.connect() for _ in range(N_CLIENTS)]
    for number, client in enumerate(clients):
        client.send(generate(id=f"r{number}", model=names[number % len(names)]))
    return clients


@pytest.mark.parametrize("max_queued", [2, N_CLIENTS])
def test_a_flood_of_names_that_are_not_there_waits_in_the_queue(
    make_daemon: MakeDaemon, tmp_path: Path, max_queued: int
):
    daemon = serving(make_daemon, tmp_path, max_queued=max_queued)
    clients = flood(daemon, [f"team/no{number}" for number in range(N_CLIENTS)])
    codes = [client.frame()["code"] for client in clients]
    allowed = {"model_not_found"} | ({"queue_full"} if max_queued == 2 else set())
    assert set(codes) <= allowed
    assert "model_not_found" in codes
    assert daemon.ask()[-1]["backend"] == "mock"


def test_models_that_cannot_be_read_are_read_once_and_leave_nothing(
    make_daemon: MakeDaemon, tmp_path: Path
):
    daemon = serving(make_daemon, tmp_path, max_queued=N_CLIENTS)
    names = [f"team/m{number}" for number in range(N_MODELS)]
    n_open = len([*Path(f"/proc/{daemon.pid}/fd").iterdir()])
    for _ in range(2):
        for client in flood(daemon, names):
            assert client.frame()["code"] == "backend_unavailable"
        daemon.leave()

    def refused() -> list[str]:
        return sorted(line["name"] for line in daemon.logged(msg="models.refused"))

    assert eventually(lambda: len(refused()) >= N_MODELS)
    assert eventually(lambda: len(daemon.worker_pids()) == 1)  # that of the other
    assert eventually(
        lambda: len([*Path(f"/proc/{daemon.pid}/fd").iterdir()]) <= n_open
    )
    assert refused() == names
