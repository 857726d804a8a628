import threading
from typing import Any

import pytest

from tests.daemon.harness import (
    Connection,
    DaemonProcess,
    Frame,
    MakeDaemon,
    blocks,
    eventually,
    mock,
)

pytestmark = pytest.mark.slow

IMAGE = {"kind": "image", "id": "m", "width": 1, "height": 1, "bytes": "AAAA"}
SOUND = {"kind": "audio", "id": "m", "sample_rate": 16_000, "bytes": "AAAAAA=="}
KEPT = mock(name="kept")


def on_demand(name: str, **settings: Any) -> Frame:
    """Make a backend that is loaded on demand; its own medium leads to it."""
    return mock(name=name, load="demand", **settings)


def showing(medium: Frame, **fields: Any) -> Frame:
    """Make a request that only a backend for its medium can serve."""
    request = blocks(**fields)
    request["attachments"] = [medium]
    part = {"type": medium["kind"], "attachment_id": "m"}
    request["messages"][0]["content"].append(part)
    return request


def ask(daemon: DaemonProcess, request: Frame) -> list[Frame]:
    with daemon.connect("infer.v2.sock") as client:
        return client.ask(request)


def states(daemon: DaemonProcess) -> dict[str, str]:
    with daemon.admin() as listener:
        backends = listener.order("backends")["backends"]
    return {each["name"]: each["state"] for each in backends}


def test_a_model_is_loaded_for_its_first_request_and_unloaded_when_idle(
    make_daemon: MakeDaemon,
):
    eyes = on_demand("eyes", vision=True, keep_alive_s=0.2, load_delay_ms=20)
    daemon = make_daemon({"backend": [KEPT, eyes]}).start()
    assert len(daemon.worker_pids()) == 1
    assert states(daemon) == {"kept": "ready", "eyes": "unloaded"}
    *told, done = ask(daemon, showing(IMAGE, id="r", progress=True))
    assert (done["type"], done["backend"]) == ("done", "eyes")
    [*_, loading] = [each for each in told if each.get("status") == "loading"]
    assert loading == {
        "type": "status",
        "id": "r",
        "status": "loading",
        "phase": "mmap",  # an earlier phase may have been over before it could be told
        "backend": "eyes",
    }
    assert eventually(lambda: states(daemon)["eyes"] == "unloaded")
    assert len(daemon.worker_pids()) == 1
    assert ask(daemon, showing(IMAGE))[-1]["type"] == "done"


def test_a_load_that_fails_is_told_to_all_who_wait_and_opens_the_breaker(
    make_daemon: MakeDaemon,
):
    broken = on_demand("eyes", vision=True, die_at_load=True)
    limits = {"breaker_deaths": 2, "breaker_open_s": 3600}
    daemon = make_daemon({"backend": [KEPT, broken], "limits": limits}).start()
    waiting: list[Connection] = []
    for number in range(4):
        client = daemon.connect("infer.v2.sock")
        client.send(showing(IMAGE, id=str(number)))
        waiting.append(client)
    for client in waiting:
        [error] = client.frames()
        assert error["code"] == "backend_unavailable"
        assert error["message"]
    for _ in range(3):  # the breaker opens at the second death
        assert ask(daemon, showing(IMAGE))[-1]["code"] == "backend_unavailable"
    assert eventually(lambda: len(daemon.logged(msg="worker.exited")) >= 2)
    assert ask(daemon, blocks())[-1]["backend"] == "kept"
    assert len(daemon.logged(msg="worker.exited")) == 2


def test_a_model_larger_than_the_memory_is_refused_with_the_numbers(
    make_daemon: MakeDaemon,
):
    large = on_demand("eyes", vision=True, memory_mb=100)
    memory = {"budget": 60 * 2**20}
    kept = {**KEPT, "memory_mb": 20}
    daemon = make_daemon({"backend": [kept, large], "memory": memory}).start()
    [error] = ask(daemon, showing(IMAGE))
    assert error["code"] == "backend_unavailable"
    assert "needs 100 MiB of memory, and 40 MiB are left" in error["message"]


def test_sixteen_clients_of_two_models_that_do_not_fit_together_are_all_served(
    make_daemon: MakeDaemon,
):
    daemon = make_daemon(
        {
            "backend": [
                on_demand("eyes", vision=True, memory_mb=60, token_delay_ms=5),
                on_demand("ears", audio=True, memory_mb=60, token_delay_ms=5),
            ],
            "memory": {
                "budget": 100 * 2**20,
                "min_residency_s": 0.1,
                "longest_wait_s": 0.1,
            },
            "admission": {"max_active": 2, "max_queued": 64},
        }
    ).start()
    ends: list[Frame] = []

    def alternate(client: Connection, first: int) -> None:
        for number in range(first, first + 6):
            medium = (IMAGE, SOUND)[number % 2]
            ends.append(client.ask(showing(medium, id=str(number % 2)))[-1])

    clients = [daemon.connect("infer.v2.sock") for _ in range(16)]
    threads = [
        threading.Thread(target=alternate, args=(client, number))
        for number, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [end for end in ends if end["type"] != "done"] == []
    assert {(end["id"], end["backend"]) for end in ends} == {
        ("0", "eyes"),
        ("1", "ears"),
    }
    assert len(ends) == 96
    assert daemon.logged(msg="worker.unloaded")


def test_what_is_wrong_with_a_model_on_demand_ends_the_start(make_daemon: MakeDaemon):
    table = {"name": "chat", "kind": "llamacpp", "load": "demand"}
    daemon = make_daemon({"backend": [KEPT, {**table, "model": "/nowhere.gguf"}]})
    assert "/nowhere.gguf" in daemon.refusal()


def test_an_operator_loads_and_unloads_by_command(make_daemon: MakeDaemon):
    eyes = on_demand("eyes", vision=True, keep_alive_s=0, aliases=["sight"])
    daemon = make_daemon({"backend": [KEPT, eyes]}).start()
    admin = daemon.admin()
    assert admin.order("load", backend="sight")["ok"]
    assert states(daemon) == {"kept": "ready", "eyes": "ready"}
    assert admin.order("unload", backend="eyes")["ok"]
    assert states(daemon) == {"kept": "ready", "eyes": "unloaded"}
    assert admin.order("load", backend="eyes")["ok"]
    assert admin.order("unload", backend="sight")["ok"]
    assert states(daemon) == {"kept": "ready", "eyes": "unloaded"}
    for backend, reason in (
        ("kept", 'not of load = "demand"'),
        ("nose", "one of eyes"),
    ):
        refused = admin.order("load", backend=backend)
        assert not refused["ok"]
        assert reason in refused["error"]
    assert admin.order("unload")["error"].endswith("one of eyes")


def test_a_request_may_let_its_model_go_earlier(make_daemon: MakeDaemon):
    eyes = on_demand("eyes", vision=True, keep_alive_s=3600)
    daemon = make_daemon({"backend": [KEPT, eyes]}).start()
    assert ask(daemon, showing(IMAGE, keep_alive_s=0.05))[-1]["type"] == "done"
    assert daemon.logged(msg="worker.unloaded")
    assert states(daemon)["eyes"] == "unloaded"


def test_a_request_that_names_a_model_on_demand_loads_it_and_the_status_tells(
    make_daemon: MakeDaemon,
):
    eyes = on_demand("eyes", aliases=["sight"], keep_alive_s=3600)
    daemon = make_daemon({"backend": [KEPT, eyes]}).start()
    listener = daemon.admin()
    assert daemon.ask(model="sight")[-1]["backend"] == "eyes"
    told: list[str] = []
    while told[-2:] != ["ready", "unloaded"]:
        frame = next(iter(listener))
        told += [frame["state"]] if frame.get("backend") == "eyes" else []
        if told == ["unloaded", "ready"]:
            assert daemon.admin().order("unload", backend="eyes")["ok"]
    assert daemon.ask()[-1]["backend"] == "kept"
