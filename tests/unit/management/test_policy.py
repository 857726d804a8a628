"""What the helper does for whom, and how much of it."""

import pytest
from hypothesis import given, strategies as st

from inferd.config.bridge_helper import HelperSettings
from inferd.limits.bridge import MAX_HELPER_REQUESTS
from inferd.management.policy import (
    HelperPolicy,
    HelperRefusedError,
    canonical_source,
    is_allowed_source,
)
from inferd.management.shares import HOUR_S, HelperShares
from inferd.wire.management import HelperRequest
from tests.cases import each_case

SHA256 = "a" * 64


@each_case(
    ("entry", "allowed", "others"),
    [
        (
            "hf:ada/small",
            [
                "hf:ada/small",
                "hf:ada/small:Q8_0",
                "hf:ada/small@main",
                "hf:ada/small/f",
            ],
            ["hf:ada/smaller", "hf:ada", "hf:eve/small"],
        ),
        ("hf:ada/", ["hf:ada/any", "hf:ada/any:Q4"], ["hf:adam/any", "hf:ada"]),
        ("hf:", ["hf:eve/any"], ["https://hf/any", "embedded:chat"]),
        ("embedded:", ["embedded:chat"], ["embed", "hf:embedded/chat"]),
        (
            "https://models.example/public/",
            ["https://models.example/public/m.gguf"],
            ["https://models.example/private/m", "https://models.example.eve/public/m"],
        ),
        (
            "https://models.example/m",
            ["https://models.example/m", "https://models.example/m/a"],
            ["https://models.example/m@a", "https://models.example/m2"],
        ),
    ],
)
def test_an_entry_allows_itself_and_what_is_below_it(entry, allowed, others):
    assert all(is_allowed_source(each, [entry]) for each in allowed)
    assert not any(is_allowed_source(each, [entry]) for each in others)


@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=8), max_size=3))
def test_nothing_is_allowed_that_begins_with_no_entry(source, entries):
    if is_allowed_source(source, entries):
        assert any(source.startswith(entry) for entry in entries)


@each_case(
    "source",
    [
        "https://models.example/public/../private/m",
        "https://models.example/public/%2e%2e/private/m",
        "https://models.example/public//m",
        "https://models.example/public/./m",
        "https://models.example/public\\..\\m",
        "https://models.example/public/m?from=https://eve",
        "https://eve@models.example/public/m",
        "http://models.example/public/m",
        "package:p==1#m.gguf",
        "hf:ada/../../etc",
        "hf:ada/small\x1b[2J",
        "/etc/passwd",
        "",
    ],
)
def test_an_ambiguous_or_other_source_is_none(source):
    with pytest.raises(HelperRefusedError) as caught:
        canonical_source(source, SHA256 if source.startswith("http") else None)
    assert caught.value.code == "invalid_request"
    assert "\x1b" not in caught.value.frame.message


@each_case("command", ["pull", "remove", "load", "unload", "reload"])
def test_nothing_that_changes_anything_is_allowed_by_default(command):
    policy = HelperPolicy(HelperSettings(), frozenset())
    request = HelperRequest(
        command=command, principal="ada", model="m", source="embedded:chat"
    )
    with pytest.raises(HelperRefusedError) as caught:
        policy.check(request)
    assert caught.value.code == "not_allowed"


def test_half_of_the_requests_are_one_principals_at_most():
    shares = HelperShares(12)
    held = [shares.request("ada") for _ in range(MAX_HELPER_REQUESTS // 2)]
    for each in held:
        each.__enter__()
    with pytest.raises(HelperRefusedError), shares.request("ada"):
        pass
    with shares.request("eve"):
        assert shares.n_requests == len(held) + 1
    for each in held:
        each.__exit__(None, None, None)
    assert not shares.n_requests


def test_one_pull_runs_at_a_time_and_so_many_begin_in_an_hour():
    shares = HelperShares(3)

    def begin(principal: str, now: float) -> None:
        with shares.pull(principal, now):
            pass

    with shares.pull("ada", 0), pytest.raises(HelperRefusedError) as caught:
        begin("eve", 1)
    assert "running" in str(caught.value)
    begin("ada", 10)
    with pytest.raises(HelperRefusedError) as caught:
        begin("ada", 20)
    assert caught.value.retry_after_s == HOUR_S - 20
    begin("eve", 30)
    with pytest.raises(HelperRefusedError):
        begin("bob", 40)
    begin("ada", HOUR_S + 5)
