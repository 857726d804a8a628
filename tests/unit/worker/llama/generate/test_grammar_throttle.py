from types import SimpleNamespace
from typing import Any

from hypothesis import given, strategies as st

from inferd.backend.caller import owner_of
from inferd.limits.worker import GRAMMAR_UNTHROTTLED_S
from inferd.worker.llama.generate.grammar_throttle import GrammarThrottle

SLOW_S = 0.125
BATCH_S = 0.015625


def sequence(ticket: int, owner: int = 0) -> Any:
    return SimpleNamespace(ticket=ticket, job=SimpleNamespace(owner=owner))


def owing(*sequences: Any) -> GrammarThrottle:
    """Charge answers for as long as a slow grammar takes, and have all of it paid."""
    dues = GrammarThrottle()
    for each in sequences:
        dues.record_grammar_time(each, SLOW_S)
        dues.record_batch_time(SLOW_S)
    return dues


def test_nobody_sits_out_whose_grammar_takes_little():
    dues, held, plain = GrammarThrottle(), sequence(1), sequence(2)
    dues.record_grammar_time(held, GRAMMAR_UNTHROTTLED_S)
    assert dues.select([held, plain]) == [held, plain]


def test_an_answer_alone_is_never_throttled():
    dues, held, plain = GrammarThrottle(), sequence(1), sequence(2)
    dues.record_grammar_time(held, SLOW_S)
    assert dues.select([held]) == [held]
    assert dues.select([held, plain]) == [plain, held]  # nobody had to wait


def test_a_slow_grammar_waits_until_others_had_as_much_time():
    dues, held, plain = GrammarThrottle(), sequence(1), sequence(2)
    dues.record_grammar_time(held, SLOW_S)
    for _ in range(int(SLOW_S / BATCH_S)):
        assert dues.select([held, plain]) == [plain]
        dues.record_batch_time(BATCH_S)
    assert dues.select([held, plain]) == [plain, held]


def test_of_those_who_took_long_one_is_let_in_at_a_time_and_users_take_turns():
    one, two, three = (sequence(ticket, owner=7) for ticket in (1, 2, 3))
    other, plain = sequence(4, owner=8), sequence(5)
    dues = owing(other, one, two, three)
    everybody = [one, two, three, other, plain]
    chosen = []
    for _ in range(6):
        [quick, slow] = dues.select(everybody)
        assert quick is plain
        chosen.append(slow.ticket)
        dues.record_grammar_time(slow, SLOW_S)
        dues.record_batch_time(SLOW_S)
    assert chosen == [4, 1, 4, 2, 4, 3]


def test_names_of_a_gateway_have_one_users_turns_and_take_turns_in_them():
    one, two, three = (sequence(n, owner=owner_of(0, n)) for n in (1, 2, 3))
    other, plain = sequence(4, owner=8), sequence(5)
    dues = owing(other, one, two, three)
    chosen = []
    for _ in range(6):
        [_, slow] = dues.select([one, two, three, other, plain])
        chosen.append(slow.ticket)
        dues.record_grammar_time(slow, SLOW_S)
        dues.record_batch_time(SLOW_S)
    assert chosen == [4, 1, 4, 2, 4, 3]


def test_a_token_that_takes_little_ends_that():
    held, other, plain = sequence(1), sequence(2), sequence(3)
    dues = owing(held, other)
    dues.record_grammar_time(held, 0)
    assert dues.select([held, other, plain]) == [held, plain, other]


def test_a_dropped_answer_is_removed_but_its_debt_stays():
    held, other, plain = sequence(1), sequence(2), sequence(3)
    dues = GrammarThrottle()
    dues.record_grammar_time(held, SLOW_S)
    dues.record_grammar_time(other, GRAMMAR_UNTHROTTLED_S * 2)
    dues.drop(held.ticket)
    assert dues.select([other, plain]) == [plain]
    dues.drop(other.ticket)
    assert (dues._slow, dues._last_charges) == ({}, {})


@given(st.lists(st.floats(0.0078125, 4), min_size=3), st.floats(0.25, 1))
def test_while_others_write_grammars_take_half_of_the_time_at_most(tokens_s, batch_s):
    plain, held = sequence(9), [sequence(ticket, owner=ticket) for ticket in range(3)]
    dues = owing(*held)
    owed_s = paid_s = 0.0
    while tokens_s:
        paid_s += batch_s
        dues.record_batch_time(batch_s)
        [first, *slow] = dues.select([*held, plain])
        assert first is plain
        assert len(slow) <= 1
        for each in slow:
            assert owed_s <= paid_s + 1e-6
            owed_s += tokens_s[-1]
            dues.record_grammar_time(each, tokens_s.pop())
