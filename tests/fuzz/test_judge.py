import pytest

from fuzz import judge as judged
from fuzz.judge import BrokenPromiseError, Request, Work, frames_of, judge
from inferd.backend.job import EmbedJob
from inferd.errors import InvalidRequestError
from inferd.ipc.encoding import MalformedMessageError


@pytest.fixture
def reads(monkeypatch):
    def install(read):
        monkeypatch.setattr(judged, "read", lambda *_: read())

    return install


def refuse(error):
    raise error


def test_an_exception_that_is_no_refusal_comes_out(reads):
    reads(lambda: refuse(KeyError("x")))
    with pytest.raises(KeyError):
        judge("v1", b"{}")


def test_one_of_resolve_comes_out_as_well(reads):
    reads(lambda: Request("r", lambda: refuse(RecursionError())))
    with pytest.raises(RecursionError):
        judge("v1", b"{}")


@pytest.mark.parametrize("id_", ["", "r"])
def test_an_error_of_many_bytes_breaks_a_promise(reads, id_, monkeypatch):
    monkeypatch.setattr(judged, "MAX_ERROR_BYTES", 100)
    reads(lambda: Request(id_, lambda: refuse(InvalidRequestError("x" * 100))))
    with pytest.raises(BrokenPromiseError, match="over its bound"):
        judge("v1", b"{}")


def test_a_text_that_is_none_does_not_get_into_an_error(reads):
    reads(lambda: refuse(InvalidRequestError("\ud800")))
    with pytest.raises(UnicodeEncodeError):
        judge("v1", b"{}")


@pytest.mark.parametrize(
    "work",
    [
        Work(EmbedJob(texts=["a"], dimensions=1, task=None), priority=11),
        Work(EmbedJob(texts=["a"], dimensions=1, task=None), deadline_ms=0),
        Work(EmbedJob(texts=["a"], dimensions=True, task=None)),
    ],
)
def test_work_that_no_worker_can_be_given_breaks_a_promise(reads, work):
    reads(lambda: Request("r", lambda: work))
    with pytest.raises((BrokenPromiseError, MalformedMessageError)):
        judge("embed", b"{}")


@pytest.mark.parametrize("n_at_once", [None, 1, 3])
def test_frames_are_those_between_newlines_and_the_rest(n_at_once):
    frames = list(frames_of("v1", b"a\n\nbc\n\rd", n_at_once=n_at_once))
    assert frames == [b"a", b"", b"bc", b"\rd"]
