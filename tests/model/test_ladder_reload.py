import pytest

from tests.daemon.configuration import to_toml
from tests.daemon.harness import DaemonProcess, MakeDaemon, llamacpp
from tests.model.tiny import write_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.model]

MEMORY = {"budget": 200 * 2**20}


def choice(daemon: DaemonProcess) -> str:
    with daemon.admin() as listener:
        return str(listener.frame()["model_choice"])


def reload(daemon: DaemonProcess, *ladder: object) -> dict[str, object]:
    backend = llamacpp("auto", ladder=[*map(str, ladder)], n_ctx=512)
    listen = {"directory": str(daemon.directory)}
    config = {"listen": listen, "memory": MEMORY, "backend": [backend]}
    daemon.config_file.write_text(to_toml(config))
    return daemon.admin().order("reload")


@pytest.mark.long
def test_a_ladder_that_changes_is_chosen_from_again_with_the_memory_of_the_one_before(
    make_daemon: MakeDaemon, embedded_chat, tmp_path
):
    first, second = (
        write_tiny_model(tmp_path / f"{seed}.gguf", seed=seed) for seed in (1, 2)
    )
    backend = llamacpp("auto", ladder=[str(first)], n_ctx=512)
    daemon = make_daemon({"memory": MEMORY, "backend": [backend]}).start()
    assert reload(daemon, embedded_chat, second)["ok"]
    assert choice(daemon).startswith(f"{second}, 2 of 2 in its ladder: ")
    assert f"; {embedded_chat} needs " in choice(daemon)
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"
    [worker] = daemon.worker_pids()
    assert reload(daemon, second, first)["applied"] == ["backend chat: ladder"]
    assert daemon.worker_pids() == [worker]  # the same model is chosen again
    refused = reload(daemon, embedded_chat)
    assert not refused["ok"]
    assert "no model of its ladder fits" in str(refused["error"])
    assert daemon.worker_pids() == [worker]
    assert daemon.ask(max_tokens=1)[-1]["type"] == "done"
