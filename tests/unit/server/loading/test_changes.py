from typing import Any

from msgspec.structs import replace

from inferd.config.kinds.llamacpp import LlamaCppSettings
from inferd.server.loading.changes import (
    Candidate,
    Change,
    ChangePlan,
    FileState,
    Served,
    Wanted,
    plan_changes,
)

FILE, CHANGED = FileState(1, 2, 3, 4), FileState(1, 2, 3, 5)


def table(name: str = "a", **settings: Any) -> LlamaCppSettings:
    return replace(LlamaCppSettings(name=name, model="m.gguf"), **settings)


def candidate(settings: LlamaCppSettings, *files: FileState) -> Candidate:
    path = f"/models/{settings.model}"
    return Candidate(replace(settings, model=path), files or (FILE,))


def served(
    settings: LlamaCppSettings, *, is_serving: bool = True, key: str = "", **of: Any
) -> Served:
    chosen = candidate(replace(settings, **of))
    return Served(key or settings.name, settings, chosen, is_serving)


def wanted(settings: LlamaCppSettings, *files: FileState) -> Wanted:
    return Wanted(settings, [candidate(settings, *files)])


def laddered(settings: LlamaCppSettings, *models: str) -> Wanted:
    rungs = (replace(settings, model=model, ladder=()) for model in models)
    return Wanted(
        settings, [candidate(each)._replace(rung=each.model) for each in rungs]
    )


def test_what_serves_already_is_kept_with_its_new_aliases():
    new = table(aliases=("other",))
    plan = plan_changes([served(table())], [wanted(new)])
    assert plan == ChangePlan({"a": new}, [], [])


def test_changed_settings_and_changed_files_are_replaced():
    for new in (wanted(table(n_ctx=512)), wanted(table(), CHANGED)):
        plan = plan_changes([served(table())], [new])
        assert plan == ChangePlan({}, [Change(new, "a")], [])


def test_what_is_out_of_service_is_tried_again_though_its_table_is_the_same():
    new = wanted(table())
    plan = plan_changes([served(table(), is_serving=False, key="a#2")], [new])
    assert plan.changes == [Change(new, "a#2")]


def test_a_new_name_for_the_same_is_a_replacement_and_not_two_changes():
    new, added = wanted(table("b", aliases=("a",))), wanted(table("c", n_ctx=512))
    plan = plan_changes([served(table()), served(table("z", n_ctx=9))], [added, new])
    assert plan == ChangePlan({}, [Change(added, None), Change(new, "a")], ["z"])


def test_two_new_names_for_one_backend_replace_it_once():
    new = [wanted(table("b")), wanted(table("c"))]
    plan = plan_changes([served(table())], new)
    assert plan.changes == [Change(new[0], "a"), Change(new[1], None)]


def test_a_kind_without_a_worker_stays_whatever_its_table_says():
    old = Served("a", table(), None, is_serving=True)
    for new in ([], [Wanted(table(n_ctx=9), [])]):
        assert plan_changes([old], new) == ChangePlan({"a": table()}, [], [])
    assert plan_changes([], [Wanted(table(), [])]) == ChangePlan({}, [], [])


def test_a_ladder_is_chosen_from_again_only_if_its_table_changes():
    ladder = table(model="auto", ladder=("x", "y"))
    was = served(ladder, model="y", ladder=())
    same = laddered(replace(ladder, aliases=("b",)), "x", "y")
    assert plan_changes([was], [same]).kept == {"a": same.configured}
    shorter = laddered(replace(ladder, ladder=("y",)), "y")
    assert plan_changes([was], [shorter]).changes == [Change(shorter, "a")]
    longer = laddered(replace(ladder, ladder=("w", "x", "y")), "w", "x", "y")
    assert plan_changes([was], [longer]).changes == [Change(longer, "a")]
