"""Lines that ask which models a socket serves."""

from structlog.testing import capture_logs

from inferd.backend.capabilities import BackendCapabilities
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import make_daemon, running


async def test_a_socket_tells_of_its_own_models(short_dir, autojump_clock):
    chat = ScriptedBackend(
        name="chat", capabilities=BackendCapabilities(v2=True, n_ctx=512)
    )
    vectors = ScriptedBackend(
        name="vectors", capabilities=BackendCapabilities(generate=False, embed=True)
    )
    told: dict[object, object] = {}
    async with running(make_daemon(short_dir, chat, vectors)) as server:
        with capture_logs() as logs:
            for leaf in ("infer.v2.sock", "infer.embed.sock"):
                async with await server.connect(leaf) as client:
                    await client.send(b'{"type":"describe","id":"r"}\n')
                    frame = await client.frame() or {}
                    assert (frame["type"], frame["id"]) == ("models", "r")
                    told[leaf] = [each["backend"] for each in frame["models"]]
                    await client.send(
                        b'{"type":"describe","id":"s","model":"vectors"}\n'
                    )
                    frame = await client.frame() or {}
                    told[leaf, "named"] = frame.get("code") or frame["type"]
    assert told == {
        "infer.v2.sock": ["chat"],
        "infer.embed.sock": ["vectors"],
        ("infer.v2.sock", "named"): "model_not_found",
        ("infer.embed.sock", "named"): "models",
    }
    levels = {each["log_level"] for each in logs if "models_listed" in each["event"]}
    assert levels == {"debug"}
    assert chat.counts.started == vectors.counts.started == 0
