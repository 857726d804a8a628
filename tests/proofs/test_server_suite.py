"""The parts that run another project's tests: its options, what is left out, the tally."""

import pytest

from proofs.server_suite.arguments import LOCAL_ORIGINS, wanted
from proofs.server_suite.expected import LeftOut
from proofs.server_suite.sources import without
from proofs.server_suite.tally import Result, tally

CHAT = [
    *("--port", "8080", "--temp", "0.8", "--offline", "--no-slots", "--no-jinja"),
    *("--alias", "tinyllama-2,fim", "--ctx-size", "512", "--parallel", "2"),
    *("--n-predict", "64"),
]
MODULE = """\
def test_one():
    if True:
        assert answer["id"] == 1
    assert answer["text"] == "a"


def test_two():
    assert answer["text"] == "a"
"""


def test_options_of_the_other_server_become_a_configuration():
    found = wanted(CHAT, takes_any_name=False)
    assert found.daemon == {
        "backend": [
            {
                "name": "tinyllama-2",
                "aliases": ["fim"],
                "kind": "llamacpp",
                "model": "embedded:chat",
                "n_ctx": 256,
            }
        ],
        "admission": {"max_active": 2},
    }
    assert (found.port, found.bridge["default_max_tokens"]) == (8080, 64)
    assert "own_user" not in found.bridge
    secured = wanted([*CHAT, "--api-key", "x", "--cors-origins", "localhost"])
    assert secured.bridge["own_user"] is False
    assert secured.bridge["origins"] == [*LOCAL_ORIGINS]
    [backend] = secured.daemon["backend"]
    assert "gpt-3.5-turbo" in backend["aliases"]


def test_assertions_are_taken_out_where_they_are():
    text, lacking = without(MODULE, [LeftOut("test_x.py", '["id"]', "theirs")])
    assert lacking == {"test_one"}
    assert '["id"]' not in text
    assert text.count('["text"]') == 2
    compile(text, "test_x.py", "exec")
    with pytest.raises(AssertionError, match="colour"):
        without(MODULE, [LeftOut("test_x.py", "colour", "gone")])


def test_only_what_is_listed_may_differ_and_what_is_listed_has_to():
    differs, passes = "unit/test_tokenize.py::test_a", "unit/test_rerank.py::test_b"
    cut, broken = "unit/test_rerank.py::test_c[1]", "unit/test_rerank.py::test_d"
    results = [
        Result(differs, "failed", is_text_compared=True, why="404"),
        Result(passes, "passed", is_text_compared=True, why=""),
        Result(cut, "passed", is_text_compared=True, why=""),
        Result(broken, "failed", is_text_compared=True, why="500"),
    ]
    found = tally(results, {"unit/test_rerank.py::test_c"})
    assert found.counts == {
        "passed": 1,
        "passed_but_for_their_model": 1,
        "differ": 1,
        "failed": 1,
    }
    assert [*found.differing.values()] == [[differs]]
    assert found.problems == [f"{broken}: 500"]
    listed = Result(differs, "passed", is_text_compared=True, why="")
    assert tally([listed]).problems == [f"{differs} is listed, and passes"]
