import pytest

from torture.outcome import Context, Size, SkippedError
from torture.suite import run_tests, tell_counts

pytestmark = pytest.mark.slow

COUNTED = """
from torture.suite import tell_counts

def test_one():
    tell_counts(kills=20, done=300)

def test_another():
    tell_counts(restarts=5)
"""


def ran(tmp_path, text: str) -> Context:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    context = Context(Size.SHORT, 1)
    run_tests(context, str(path))
    return context


def test_what_tests_count_is_reported_beside_their_number(tmp_path):
    context = ran(tmp_path, COUNTED)
    assert context.counts == {"kills": 20, "done": 300, "restarts": 5, "passed": 2}
    assert context.problems == []


def test_a_test_that_fails_is_a_problem(tmp_path):
    context = ran(tmp_path, "def test_it(): assert 1 == 2\n")
    assert context.counts == {"failed": 1}
    assert len(context.problems) == 1


def test_where_all_are_skipped_the_item_is_with_the_reason(tmp_path):
    with pytest.raises(SkippedError, match="no such thing"):
        ran(tmp_path, "import pytest\ndef test_it(): pytest.skip('no such thing')\n")


def test_counts_are_written_where_somebody_reports_them_and_else_nowhere(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORTURE_COUNTS", raising=False)
    tell_counts(kills=1)
    assert [*tmp_path.iterdir()] == []
    monkeypatch.setenv("TORTURE_COUNTS", "counts")
    tell_counts(kills=2)
    assert (tmp_path / "counts").read_text() == '{"kills": 2}\n'
