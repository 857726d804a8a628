"""The short version of ``make torture``."""

import sys

import pytest

from torture.catalogue import BY_KEY, ITEMS
from torture.outcome import Context, Size, Verdict
from torture.trial import try_item

SEED = 1
AS_THEY_ARE = {"R16", "R17"}
"""Items that are tests, which run anyhow."""
WITH_A_MODEL = {"R2", "R4", "R21"}
KEYS = [
    pytest.param(key, marks=[pytest.mark.model] * (key in WITH_A_MODEL))
    for key in BY_KEY
    if key not in AS_THEY_ARE
]


@pytest.mark.slow
@pytest.mark.short_version
@pytest.mark.parametrize("key", KEYS)
def test_the_daemon_keeps_its_word(key, capsys):
    outcome = try_item(BY_KEY[key], Context(Size.SHORT, SEED))
    if outcome.verdict is Verdict.SKIPPED:
        pytest.skip(f"{key}: {outcome.reason}")
    assert outcome.verdict is Verdict.HELD, f"seed {SEED}: {outcome.reason}"
    for note in outcome.notes:
        if "skipped" in note:  # a part of it, for what this machine lacks
            with capsys.disabled():
                sys.stdout.write(f"\n{key}: {note}\n")


def test_the_list_is_whole():
    assert [item.KEY for item in ITEMS] == [f"R{n}" for n in range(1, 22)]
