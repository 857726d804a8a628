import re

import pytest

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.models.convert.recipes import RECIPES
from inferd.models.embedded import (
    EMBEDDED_MODELS,
    EmbeddedModel,
    Member,
    Package,
    UnknownModelError,
    embedded_model,
)
from tests.cases import each_case

TINY = EmbeddedModel(
    name="tiny",
    packages=(
        Package("tiny==1", "1" * 64, (Member("tiny/deep/weights.bin", "tiny.gguf"),)),
    ),
    file_name="tiny.gguf",
    sha256="0" * 64,
    size_bytes=1,
    license="MIT",
    recipe="tiny",
)
SHA256 = re.compile(r"[0-9a-f]{64}")


def members_of(model):
    return [member for package in model.packages for member in package.members]


def test_the_default_model_is_one_of_those_the_daemon_knows():
    assert embedded_model(LlamaCppSettings(name="c").model) is EMBEDDED_MODELS["chat"]


def test_there_is_a_model_for_each_use():
    assert list(EMBEDDED_MODELS) == [
        *("chat", "embed", "rerank", "speech", "speech-multilingual")
    ]


@each_case("reference", ["/models/chat.gguf", "chat", "", "EMBEDDED:chat"])
def test_a_path_means_no_embedded_model(reference):
    assert embedded_model(reference) is None


@pytest.mark.parametrize("reference", ["embedded:", "embedded:Chat", "embedded:chat "])
def test_a_name_that_means_nothing_is_refused_with_those_that_do(reference):
    with pytest.raises(UnknownModelError) as caught:
        embedded_model(reference)
    assert str(caught.value) == (
        f"{reference}: no such model; "
        "allowed: a path, embedded:chat, embedded:embed, embedded:rerank, "
        "embedded:speech, embedded:speech-multilingual"
    )


def test_it_has_the_name_that_configurations_have():
    assert (TINY.reference, TINY.revision) == ("embedded:tiny", "tiny==1")


@each_case("model", EMBEDDED_MODELS.values(), ids=EMBEDDED_MODELS)
def test_an_embedded_model_is_pinned_to_the_byte(model):
    for package in model.packages:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9.]+", package.requirement)
        assert package.sha256 is not None
        assert SHA256.fullmatch(package.sha256)
    assert SHA256.fullmatch(model.sha256)
    paths = {member.path for member in members_of(model)}
    assert len(paths) == len(members_of(model)) > 0
    suffix = {"llamacpp": ".gguf", "whispercpp": ".bin"}[model.kind]
    assert model.file_name.endswith(suffix)
    assert model.size_bytes > 0
    assert model.license


@each_case("model", EMBEDDED_MODELS.values(), ids=EMBEDDED_MODELS)
def test_a_model_is_one_member_as_it_is_or_has_a_recipe_that_there_is(model):
    if model.recipe is None:
        assert [model.file_name] == [member.name for member in members_of(model)]
    else:
        assert model.recipe in RECIPES
