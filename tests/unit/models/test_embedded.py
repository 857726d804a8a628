import re
from pathlib import Path

import pytest

from inferd.config import DEFAULT_CHAT_MODEL
from inferd.models.embedded import (
    EMBEDDED_MODELS,
    EmbeddedModel,
    UnknownModelError,
    embedded_model,
)

TINY = EmbeddedModel(
    name="tiny",
    package="tiny==1",
    member="tiny/deep/tiny.gguf",
    sha256="0" * 64,
    size_bytes=1,
    license="MIT",
)


def test_the_default_model_is_one_of_those_the_daemon_knows():
    assert embedded_model(DEFAULT_CHAT_MODEL) is EMBEDDED_MODELS["chat"]


@pytest.mark.parametrize(
    "reference", ["/models/chat.gguf", "chat", "", "EMBEDDED:chat"]
)
def test_a_path_means_no_embedded_model(reference):
    assert embedded_model(reference) is None


@pytest.mark.parametrize("reference", ["embedded:", "embedded:Chat", "embedded:chat "])
def test_a_name_that_means_nothing_is_refused_with_those_that_do(reference):
    with pytest.raises(UnknownModelError) as caught:
        embedded_model(reference)
    assert str(caught.value) == (
        f"{reference}: no such model; allowed: a path, embedded:chat"
    )


def test_a_file_is_kept_under_its_hash():
    assert TINY.path_in(Path("/cache")) == Path(f"/cache/models/{'0' * 64}/tiny.gguf")


@pytest.mark.parametrize("model", EMBEDDED_MODELS.values(), ids=EMBEDDED_MODELS)
def test_an_embedded_model_is_pinned_to_the_byte(model):
    assert re.fullmatch(r"[a-z0-9-]+==[0-9.]+", model.package)
    assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
    assert model.member.endswith(".gguf")
    assert model.size_bytes > 0
    assert model.license
