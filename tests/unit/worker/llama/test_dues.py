from types import SimpleNamespace
from typing import Any

from hypothesis import given, strategies as st

from inferd.worker.limits import GRAMMAR_FREE_S
from inferd.worker.llama.dues import Dues

SLOW_S = 0.125
BATCH_S = 0.015625


def sequence(ticket: int, owner: int = 0) -> Any:
    return SimpleNamespace(ticket=ticket, job=SimpleNamespace(owner=owner))


def owing(*sequences: Any) -> Dues:
    """Charge answers for as long as a slow grammar takes, and have all of it paid."""
    dues = Dues()
    for each in sequences:
        dues.charge(each, SLOW_S)
        dues.pay(SLOW_S)
    return dues


def test_nobody_sits_out_whose_grammar_takes_little():
    dues, held, plain = Dues(), sequence(1), sequence(2)
    dues.charge(held, GRAMMAR_FREE_S)
    assert dues.taking_part([held, plain]) == [held, plain]


def test_who_is_alone_never_sits_out():
    dues, held, plain = Dues(), sequence(1), sequence(2)
    dues.charge(held, SLOW_S)
    assert dues.taking_part([held]) == [held]
    assert dues.taking_part([held, plain]) == [plain, held]  # nobody had to wait


def test_who_took_long_sits_out_until_others_had_as_much():
    dues, held, plain = Dues(), sequence(1), sequence(2)
    dues.charge(held, SLOW_S)
    for _ in range(int(SLOW_S / BATCH_S)):
        assert dues.taking_part([held, plain]) == [plain]
        dues.pay(BATCH_S)
    assert dues.taking_part([held, plain]) == [plain, held]


def test_of_those_who_took_long_one_is_let_in_at_a_time_and_users_take_turns():
    one, two, three = (sequence(ticket, owner=7) for ticket in (1, 2, 3))
    other, plain = sequence(4, owner=8), sequence(5)
    dues = owing(other, one, two, three)
    everybody = [one, two, three, other, plain]
    chosen = []
    for _ in range(6):
        [quick, slow] = dues.taking_part(everybody)
        assert quick is plain
        chosen.append(slow.ticket)
        dues.charge(slow, SLOW_S)
        dues.pay(SLOW_S)
    assert chosen == [4, 1, 4, 2, 4, 3]


def test_a_token_that_takes_little_ends_that():
    held, other, plain = sequence(1), sequence(2), sequence(3)
    dues = owing(held, other)
    dues.charge(held, 0)
    assert dues.taking_part([held, other, plain]) == [held, plain, other]


def test_who_is_gone_is_forgotten_and_what_it_owes_is_not():
    held, other, plain = sequence(1), sequence(2), sequence(3)
    dues = Dues()
    dues.charge(held, SLOW_S)
    dues.charge(other, GRAMMAR_FREE_S * 2)
    dues.drop(held.ticket)
    assert dues.taking_part([other, plain]) == [plain]
    dues.drop(other.ticket)
    assert (dues._slow, dues._turns) == ({}, {})


@given(st.lists(st.floats(0.0078125, 4), min_size=3), st.floats(0.25, 1))
def test_while_others_write_grammars_take_half_of_the_time_at_most(tokens_s, batch_s):
    plain, held = sequence(9), [sequence(ticket, owner=ticket) for ticket in range(3)]
    dues = owing(*held)
    owed_s = paid_s = 0.0
    while tokens_s:
        paid_s += batch_s
        dues.pay(batch_s)
        [first, *slow] = dues.taking_part([*held, plain])
        assert first is plain
        assert len(slow) <= 1
        for each in slow:
            assert owed_s <= paid_s + 1e-6
            owed_s += tokens_s[-1]
            dues.charge(each, tokens_s.pop())
