from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

from inferd.limits.worker import (
    TOKENIZE_AT_ONCE_BYTES,
    TOKENIZE_MAX_BYTES,
    TOKENIZE_PART_CHARS,
    TOKENIZE_S,
)
from inferd.worker.backend import RefusedError
from inferd.worker.llama.model import length_check
from inferd.worker.llama.model.length_check import FarTooLongError, LengthCheck

pytestmark = pytest.mark.model

N_CTX = 512
PART = 64
TEXTS = st.text(st.sampled_from("ab \nz\N{GRINNING FACE}"), max_size=50).map(
    lambda text: text * 8
)


@contextmanager
def in_small_parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(length_check, "TOKENIZE_AT_ONCE_BYTES", 100)
        patch.setattr(length_check, "TOKENIZE_PART_CHARS", PART)
        patch.setattr(length_check, "TOKENIZE_MAX_BYTES", 10_000)
        yield


@pytest.fixture
def small_parts():
    with in_small_parts():
        yield


@pytest.fixture(scope="package")
def model(loaded):
    return loaded._model


@pytest.fixture
def cuts(model, monkeypatch):
    """Texts that were tokenised."""
    done: list[str] = []
    cut = model.tokenize_raw

    def noted(text, **options):
        done.append(text)
        return cut(text, **options)

    monkeypatch.setattr(model, "tokenize_raw", noted)
    return done


def set_clock(monkeypatch, now: Callable[[], float]) -> None:
    """Have the checks alone read another clock: a thread of another test reads the real one."""
    monkeypatch.setattr(length_check, "time", SimpleNamespace(monotonic=now))


def check(model, *pieces, n_ctx=N_CTX):
    LengthCheck(model, n_ctx, parses_special=True).refuse_too_long(pieces)


def test_a_text_that_is_tokenised_soon_is_not_looked_at(model, cuts):
    check(model, "\n" * (TOKENIZE_AT_ONCE_BYTES - 2), "ab")
    assert cuts == []


def test_a_text_that_is_far_too_long_is_looked_at_in_small_parts_until_that_is_sure(
    model, cuts, small_parts
):
    with pytest.raises(FarTooLongError) as caught:
        check(model, "x" * 9000)
    assert 1.98 * N_CTX < caught.value.n_tokens < 2 * N_CTX + PART
    assert set(map(len, cuts)) == {PART}
    assert sum(map(len, cuts)) < 2 * N_CTX + 3 * PART


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=3), st.integers(1, 300))
def test_what_fits_passes_and_what_does_not_has_at_least_as_many_tokens_as_told(
    model, pieces, n_ctx
):
    tokens = [
        token
        for piece in pieces
        for token in model.tokenize_raw(piece, adds_special=False, parses_special=True)
    ]
    try:
        with in_small_parts():
            check(model, *pieces, n_ctx=n_ctx)
    except FarTooLongError as error:
        assert 1.98 * n_ctx < error.n_tokens <= len(tokens)  # noqa: PT017


def test_pieces_of_one_text_count_together(model, small_parts):
    check(model, *["x" * 64] * 16)
    with pytest.raises(FarTooLongError):
        check(model, *["x" * 64] * 17)


def test_long_pieces_of_few_tokens_are_refused_before_they_are_tokenised_whole(
    model, monkeypatch
):
    read: list[str] = []

    def cut(text, **_):
        read.append(text)
        return []

    monkeypatch.setattr(model, "tokenize_raw", cut)
    spaces = " " * TOKENIZE_MAX_BYTES
    check(model, spaces)
    for pieces in ([spaces, " "], [spaces] * 16):
        read.clear()
        with pytest.raises(RefusedError, match=f"at most {TOKENIZE_MAX_BYTES} bytes"):
            check(model, *pieces)
        assert sum(map(len, read)) <= TOKENIZE_MAX_BYTES + TOKENIZE_PART_CHARS


def test_many_texts_have_their_time_and_no_more(model, cuts, monkeypatch):
    now = 5.0
    set_clock(monkeypatch, lambda: now)
    watching = LengthCheck(model, N_CTX, parses_special=False)
    for now in (5.0, 5.0 + TOKENIZE_S):  # noqa: B007  # the lambda sees it
        watching.refuse_too_long(["hello"])
    now = 5.1 + TOKENIZE_S
    with pytest.raises(RefusedError, match=f"over {TOKENIZE_S:g} s"):
        watching.refuse_too_long(["hello"])
    assert cuts == []


def test_a_text_of_many_pieces_has_no_more_time(model, monkeypatch, small_parts):
    times = iter([0.0, 0.0, 1.0, TOKENIZE_S + 1])
    set_clock(monkeypatch, lambda: next(times))
    with pytest.raises(RefusedError, match=f"over {TOKENIZE_S:g} s"):
        check(model, *["x" * 90] * 4)
