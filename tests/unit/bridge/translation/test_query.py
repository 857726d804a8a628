import json

from hypothesis import given, strategies as st

from inferd.bridge.anthropic.api import model_list
from inferd.bridge.translation.api import OfferedModel

NAMES = [f"m{number}" for number in range(7)]
MODELS = [OfferedModel(name, ("generate",)) for name in NAMES]


@given(st.integers(1, 9), st.booleans())
def test_pages_make_up_the_list_in_either_direction(n_most, is_backwards):
    found, beyond = ([], "") if not is_backwards else ([NAMES[-1]], "before_id=m6")
    for _page in NAMES:
        page = json.loads(model_list(MODELS, 7, f"limit={n_most}&{beyond}".encode()))
        names = [each["id"] for each in page["data"]]
        assert (names[0], names[-1]) == (page["first_id"], page["last_id"])
        assert len(names) <= n_most
        found = [*names, *found] if is_backwards else [*found, *names]
        beyond = f"before_id={names[0]}" if is_backwards else f"after_id={names[-1]}"
        if not page["has_more"]:
            break
    assert found == NAMES
