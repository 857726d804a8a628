import pytest

from inferd.models.pull.download import DownloadBounds
from inferd.models.pull.outdated import Age, compare
from inferd.models.pull.pull import PullOptions, plan_pull, pull
from inferd.models.pull.source import parse_source
from tests.unit.models.store.stores import add_model

pytestmark = pytest.mark.slow

OLD, NEW, PROJECTOR = b"GGUF old", b"GGUF new", b"GGUF projector"
NAME = "me/m:m-Q8_0"
FILE = "m-Q8_0.gguf"


@pytest.fixture
def age(hub, shared, store):
    """Pull a model, change its source, and tell how old the model is then."""

    def run(change, source="hf:me/m", **options):
        hub.add_repository("me/m", {FILE: OLD, "mmproj.gguf": PROJECTOR}, "old")
        plan = plan_pull(store, shared, parse_source(source), PullOptions(**options))
        pull(store, shared, plan, DownloadBounds(), lambda _: lambda *_: None)
        change()
        hub.asked.clear()
        comparison = compare(store.model(plan.name), shared, "")
        assert not [asked for asked in hub.asked if "resolve" in asked.path]
        return comparison

    return run


def test_the_same_revision_is_current(age):
    assert age(lambda: None) == (Age.CURRENT, "old", "")


def test_another_file_makes_a_model_outdated(age, hub):
    files = {FILE: NEW, "mmproj.gguf": PROJECTOR}
    compared = age(lambda: hub.add_repository("me/m", files, "new"))
    assert compared == (Age.OUTDATED, "new", "")


def test_another_revision_with_the_same_files_does_not(age, hub):
    files = {FILE: OLD, "mmproj.gguf": PROJECTOR, "m-Q4_0.gguf": NEW}
    change = lambda: hub.add_repository("me/m", files, "new")  # noqa: E731
    assert age(change, f"hf:me/m/{FILE}").age is Age.CURRENT
    files["mmproj.gguf"] = NEW
    assert age(change, f"hf:me/m/{FILE}").age is Age.OUTDATED
    assert age(change, "hf:me/m:Q8_0", with_projector=False).age is Age.CURRENT


def test_a_commit_cannot_be_outdated(age, hub):
    compared = age(
        lambda: hub.add_repository("me/m", {FILE: NEW}, "new"), "hf:me/m@old"
    )
    assert compared == (Age.FIXED, "old", "")
    assert hub.asked == []


@pytest.mark.parametrize("change", [dict.clear, lambda every: every["me/m"].clear()])
def test_a_source_that_cannot_be_asked_is_told(age, hub, change):
    compared = age(lambda: change(hub.repositories))
    assert compared.age is Age.UNKNOWN
    assert "hub" in compared.reason


def test_a_source_that_has_no_such_file_anymore_is_told(age, hub):
    compared = age(lambda: hub.add_repository("me/m", {"x.bin": NEW}, "new"))
    assert compared.age is Age.UNKNOWN
    assert "no model" in compared.reason


def test_a_file_and_what_nobody_can_read_are_no_sources_to_ask(shared, store, hub):
    assert compare(add_model(store, "a", OLD), shared, "").age is Age.FIXED
    assert hub.asked == []
