"""The short version of ``make proof``."""

import sys

import pytest

from proofs import (
    chats_kills,
    client_kills,
    described_routes,
    first_answer,
    fleet,
    llama_server,
    long_chat,
    published_routes,
    pulls,
    remote_faults,
    remote_servers,
)
from proofs.catalogue import BY_KEY
from proofs.ends import LIES, STRIKES
from torture.outcome import Context, Size, Verdict
from torture.trial import try_item

pytestmark = [pytest.mark.slow, pytest.mark.short_version]
SEED = 1


def held(key, capsys):
    outcome = try_item(BY_KEY[key], Context(Size.SHORT, SEED))
    assert outcome.verdict is Verdict.HELD, f"seed {SEED}: {outcome.reason}"
    for note in outcome.notes:
        if "skipped" in note:  # a part of it, for what this machine lacks
            with capsys.disabled():
                sys.stdout.write(f"\n{key}: {note}\n")
    return outcome


def test_pulls_that_end_at_any_byte_leave_the_store_whole(capsys):
    outcome = held(pulls.KEY, capsys)
    is_left_out = bool(outcome.notes)
    ways = {end.name for end in STRIKES if not (end.needs_small_disk and is_left_out)}
    assert {*ways, LIES[0].name, "started_as_fork", "complete"} <= {*outcome.counts}
    assert outcome.counts["failures"] == 0


@pytest.mark.model
def test_three_commands_lead_from_nothing_to_an_answer(capsys):
    assert held(first_answer.KEY, capsys).counts == {"commands": 3}


@pytest.mark.model
def test_cases_of_llama_cpps_server_pass_at_the_bridge(capsys):
    counts = held(llama_server.KEY, capsys).counts
    assert (counts["cases"], counts["differ"], counts["failed"]) == (8, 1, 0)


def test_routes_answer_as_they_are_described(capsys):
    counts = held(described_routes.KEY, capsys).counts
    assert counts["failures"] == 0
    assert counts["status_200"] > 0
    assert counts["status_400"] > 0
    assert not [name for name in counts if name.startswith("status_5")]


def test_conversations_go_on_while_members_of_a_fleet_die_and_are_drained(capsys):
    outcome = held(fleet.KEY, capsys)
    counts = outcome.counts
    assert counts["under_kills_lost"] == counts["prefixes_failed_when_begun"] == 0
    assert counts["under_kills_answered"] > counts["under_kills_conversations"]
    assert counts["prefixes_moved"] < counts["round_robin_moved"]


def test_answers_have_the_form_that_documents_give_them(capsys):
    counts = held(published_routes.KEY, capsys).counts
    for api in ("openai", "ollama"):
        assert counts[f"{api}_failures"] == 0
        assert counts[f"{api}_whole_status_200"] > 0
        assert counts[f"{api}_streamed_status_200"] > 0


def test_a_broken_answer_of_a_remote_has_one_end_and_opens_its_breaker(capsys):
    counts = held(remote_faults.KEY, capsys).counts
    faults = ("reset", "close", "stall", "garbage", "status_429", "status_500")
    assert sum(counts[name] for name in faults) == 40
    assert counts["errors"] + counts.get("after_the_end", 0) == 40
    assert counts["breakers_opened"] == len(remote_faults.KINDS)


@pytest.mark.model
def test_a_conversation_is_the_same_through_every_kind(capsys):
    counts = held(remote_servers.KEY, capsys).counts
    assert (counts["conversations"], counts["same_to_the_letter"]) == (30, 29)


def test_calls_of_one_client_end_as_documented_when_the_daemon_is_killed(capsys):
    counts = held(client_kills.KEY, capsys).counts
    for name in client_kills.WAYS:
        assert counts[f"sockets_{name}_answered"] > 0
        assert counts[f"bridge_{name}_answered"] > 0


@pytest.mark.root
def test_chats_lose_nothing_when_what_they_go_through_is_killed(capsys):
    counts = held(chats_kills.KEY, capsys).counts
    assert counts["acknowledged"] > 0
    killed = [count for name, count in counts.items() if name.endswith("_killed")]
    assert sum(killed) == 6


def test_a_long_chat_is_drawn_a_frame_at_a_time(capsys):
    outcome = held(long_chat.KEY, capsys)
    assert outcome.counts["answer_1_frames_with_script"] > 10
    assert outcome.figures["heap_answer_2_mib"] > 0
