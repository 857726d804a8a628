import os
import signal
from types import SimpleNamespace

import pytest

from inferd.backend import BackendCapabilities
from inferd.config import MockSettings
from inferd.ipc import Ended, Loading, Step
from inferd.job import GenerateJob, Sampling
from inferd.wire.requests import ChatMessage
from inferd.wire.responses import Usage
from inferd.worker.mock import MockBackend


def job(max_tokens=1000):
    return GenerateJob(
        messages=[ChatMessage("user", "hi")],
        max_tokens=max_tokens,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )


def backend(*tokens, **settings):
    return MockBackend(MockSettings(name="m", tokens=tokens, **settings))


def started(mock, *tickets, max_tokens=1000):
    for ticket in tickets:
        mock.start(ticket, mock.prepare(job(max_tokens)))
    return mock


def ended(ticket, n_tokens, why="end"):
    usage = Usage(prompt_tokens=0, completion_tokens=n_tokens)
    return Ended(ticket=ticket, stop_reason=why, usage=usage)


@pytest.fixture
def deaths(monkeypatch):
    """The signals that the worker would have died by."""
    signals: list[int] = []
    fake = SimpleNamespace(getpid=os.getpid, kill=lambda _, each: signals.append(each))
    monkeypatch.setattr("inferd.worker.mock.os", fake)
    return signals


def test_it_is_ready_at_once():
    reports: list[Loading] = []
    assert backend().load(reports.append) == (BackendCapabilities(model="mock"), "mock")
    assert reports == [Loading(phase="checking_local", path="(mock)")]


def test_it_says_its_lines_one_a_step_and_ends_with_the_last():
    mock = started(backend("Hé", "llo"), 7)
    assert mock.step() == Step(pieces=[(7, "Hé".encode())])
    assert mock.is_busy
    assert mock.step() == Step(pieces=[(7, b"llo")], ended=[ended(7, 2)])
    assert not mock.is_busy
    assert mock.step() == Step()


def test_its_prompts_cost_nothing():
    assert backend("a").prepare(job()).prompt_tokens == 0


@pytest.mark.parametrize(
    ("max_tokens", "why"), [(0, "length"), (1, "length"), (2, "end"), (3, "end")]
)
def test_it_says_no_more_than_it_may(max_tokens, why):
    mock = started(backend("a", "b"), 1, max_tokens=max_tokens)
    steps = [mock.step() for _ in range(max(1, min(max_tokens, 2)))]
    pieces = [piece for step in steps for _, piece in step.pieces]
    assert pieces == [b"a", b"b"][:max_tokens]
    assert steps[-1].ended == [ended(1, len(pieces), why)]


def test_without_lines_it_ends_at_once():
    assert started(backend(), 1).step() == Step(ended=[ended(1, 0)])


def test_many_recite_at_once_each_at_its_own_place():
    mock = started(backend("a", "b"), 1)
    mock.step()
    started(mock, 2)
    assert mock.step() == Step(pieces=[(1, b"b"), (2, b"a")], ended=[ended(1, 2)])
    assert mock.step() == Step(pieces=[(2, b"b")], ended=[ended(2, 2)])


def test_who_is_dropped_falls_silent():
    mock = started(backend("a", "b"), 1, 2)
    mock.drop(1)
    mock.drop(1)
    assert mock.step().pieces == [(2, b"a")]


def test_it_waits_before_each_step(monkeypatch):
    naps: list[float] = []
    monkeypatch.setattr("inferd.worker.mock.time", SimpleNamespace(sleep=naps.append))
    mock = started(backend("a", "b", token_delay_ms=50), 1, 2)
    mock.step()
    assert naps == [0.05]


@pytest.mark.parametrize("n_tokens", [1, 2])
def test_it_dies_on_cue_after_so_many_tokens(deaths, n_tokens):
    mock = started(
        backend("a", "b", "c", die_after_tokens=n_tokens, die_by="SIGSEGV"), 1
    )
    for _ in range(n_tokens):
        mock.step()
        assert deaths == []
    mock.step()
    assert deaths == [signal.SIGSEGV]


def test_it_dies_before_it_is_ready_if_told_to(deaths):
    reports: list[Loading] = []
    backend(die_at_load=True, die_by="SIGSTOP").load(reports.append)
    assert deaths == [signal.SIGSTOP]
    assert len(reports) == 1


def test_it_does_not_die_unless_told_to(deaths):
    mock = started(backend("a", "b"), 1)
    mock.step()
    mock.step()
    assert deaths == []
