import json

from inferd.backend.capabilities import (
    AcceleratorInfo,
    AcceleratorKind,
    BackendCapabilities,
)
from inferd.errors import ModelNotFoundError
from inferd.limits.protocol import MAX_DESCRIBED_MODELS, MAX_LISTED_MODELS
from inferd.routing import GENERATES, ModelNames
from inferd.server.connection.response_writer import error_frame
from inferd.server.services.described import described_models, listed_models
from inferd.wire.codec import encode
from tests.fakes.backend import ScriptedBackend

TOLD = {
    "transcribe",
    *("backend", "aliases", "state", "is_unread", "model", "dialect"),
    *("generate", "embed", "rerank", "tools", "thinking", "vision", "audio"),
    *("structure", "n_ctx", "n_embd"),
}
ON_THE_MACHINE = AcceleratorInfo(
    kind=AcceleratorKind.CUDA, gpu_layers=33, device_name="H900", vram_total_bytes=12345
)


def backend(name: str, *, generates: bool = True) -> ScriptedBackend:
    capabilities = BackendCapabilities(
        generate=generates,
        embed=not generates,
        n_ctx=512,
        accelerator=ON_THE_MACHINE,
        cpu_variant="zen9",
        model="Chat",
    )
    return ScriptedBackend(name=name, capabilities=capabilities)


def test_a_refusal_describes_only_what_would_do_and_nothing_of_the_machine():
    backends = [backend(f"chat-{n}") for n in range(MAX_LISTED_MODELS + 8)]
    backends.insert(0, backend("vectors", generates=False))
    backends[1].go_down("/srv/secret.gguf is broken")
    refused = ModelNotFoundError("?", "is not served here", ["chat-0"])
    names = ModelNames({"chat-1": ("fast",)})
    names.replace_stored([f"stored-{n}" for n in range(MAX_LISTED_MODELS)])
    refused.described = described_models(backends, [GENERATES], names)
    line = encode(error_frame("r", refused))
    told = json.loads(line)["described"]
    assert len(told) == MAX_LISTED_MODELS
    assert {name for each in told for name in each} <= TOLD
    assert [each["backend"] for each in told[:2]] == ["chat-0", "chat-1"]
    assert (told[0]["state"], told[1]["aliases"]) == ("failed", ["fast"])
    for secret in (b"secret", b"H900", b"12345", b"zen9", b"vectors"):
        assert secret not in line


def test_a_request_that_asks_for_nothing_is_told_names_alone():
    refused = ModelNotFoundError("?", "is not served here", ["chat-0"])
    told = json.loads(encode(error_frame("r", refused)))
    assert set(told) == {"type", "id", "code", "message", "models"}


def test_a_list_is_bounded_and_tells_how_many_it_leaves_out():
    backends = [backend(f"chat-{n}") for n in range(3)]
    backends.insert(0, backend("vectors", generates=False))
    names = ModelNames()
    names.replace_stored([f"stored-{n}" for n in range(MAX_DESCRIBED_MODELS)])
    told, n_models = listed_models(
        backends, [GENERATES], names, most=MAX_DESCRIBED_MODELS
    )
    assert (len(told), n_models) == (MAX_DESCRIBED_MODELS, MAX_DESCRIBED_MODELS + 3)
    assert [each.backend for each in told[2:4]] == ["chat-2", "stored-0"]
    most, _ = listed_models(backends, [GENERATES], names, most=2)
    assert [each.backend for each in most] == ["chat-0", "chat-1"]
