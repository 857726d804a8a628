import errno
import struct

import pytest
from hypothesis import given, strategies as st

from inferd.sandbox import bpf
from inferd.sandbox.bpf import ArgIn, ArgLacks, ArgNull
from tests.cases import each_case
from tests.fakes.bpf import verdict

OURS, ANOTHER = 0xC000_003E, 0x4000_0003
NUMBERS = {"read": 0, "open": 2, "clone": 56, "clone3": 435, "send": 44}
RULES = {
    "read": (),
    "open": (ArgLacks(1, 0b11), ArgIn(2, (1, 2, 3))),
    "clone": (ArgIn(0, (0x11, 2**31)),),
    "send": (ArgNull(4),),
    "on another processor": (),
}
REFUSED, NO_SUCH_CALL = bpf.REFUSE_EPERM, bpf.REFUSE_ENOSYS


def asked(number: int, *arguments: int, architecture: int = OURS) -> int:
    code = bpf.build_filter(OURS, NUMBERS, RULES, ("clone3",))
    return verdict(code, architecture, number, arguments)


@given(number=st.integers(0, 2**32 - 1), arguments=st.lists(st.integers(0), max_size=6))
def test_what_no_rule_names_is_refused(number, arguments):
    if number not in NUMBERS.values():
        assert asked(number, *arguments) == REFUSED
    assert asked(number, *arguments, architecture=ANOTHER) == REFUSED


@given(st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_a_rule_without_tests_allows_any_use(arguments):
    assert asked(0, *arguments) == bpf.ALLOW
    assert asked(435, *arguments) == NO_SUCH_CALL


@each_case(
    ("number", "arguments", "allowed"),
    [
        (2, (0, 0, 1), True),
        (2, (0, 4, 3), True),
        (2, (0, 1, 1), False),
        (2, (0, 2, 2), False),
        (2, (0, 0, 4), False),
        (56, (0x11,), True),
        (56, (2**31,), True),
        (56, (2**32 + 0x11,), True),  # the kernel reads no more than 32 bits
        (56, (0x10,), False),
        (44, (5, 6, 7, 8, 0), True),
        (44, (0, 0, 0, 0, 1), False),
        (44, (0, 0, 0, 0, 2**32), False),
        (44, (0, 0, 0, 0, 2**63), False),
    ],
)
def test_all_tests_of_a_rule_have_to_hold(number, arguments, allowed):
    assert asked(number, *arguments) == (bpf.ALLOW if allowed else REFUSED)


def test_refusing_is_an_error_and_nothing_else():
    assert REFUSED & 0xFFFF_0000 == NO_SUCH_CALL & 0xFFFF_0000 == 0x0005_0000
    assert (REFUSED & 0xFFFF, NO_SUCH_CALL & 0xFFFF) == (errno.EPERM, errno.ENOSYS)
    answers = [
        value
        for code, _, _, value in struct.iter_unpack(
            "=HBBI", bpf.build_filter(OURS, NUMBERS, RULES, ("clone3",))
        )
        if code == bpf.RETURN
    ]
    assert set(answers) == {bpf.ALLOW, REFUSED, NO_SUCH_CALL}


def test_a_filter_that_no_kernel_takes_is_not_written():
    names = {f"call {number}": number for number in range(2048)}
    with pytest.raises(ValueError, match="4096 instructions"):
        bpf.build_filter(OURS, names, dict.fromkeys(names, ()))
    with pytest.raises(ValueError, match="too long"):
        bpf.build_filter(OURS, {"read": 0}, {"read": (ArgIn(0, tuple(range(300))),)})
