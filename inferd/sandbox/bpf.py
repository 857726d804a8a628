"""Assembler of system call filters in classic BPF.

A filter is a chain of rules, one for each allowed call. A rule tests the call's arguments
if not all uses are allowed. All other calls are refused, or allowed. Jumps lead only forward, to labels
inside their own rule, so that no rule depends on the rules around it.
"""

import errno
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

LOAD: Final = 0x20
JUMP_IF_EQUAL: Final = 0x15
JUMP_IF_ANY_BIT: Final = 0x45
RETURN: Final = 0x06

ALLOW: Final = 0x7FFF_0000
REFUSE_EPERM: Final = 0x0005_0000 | errno.EPERM
REFUSE_ENOSYS: Final = 0x0005_0000 | errno.ENOSYS

NUMBER_AT: Final = 0
ARCHITECTURE_AT: Final = 4
_ARGUMENTS_AT: Final = 16
_ARGUMENT_BYTES: Final = 8
_HIGH_AT: Final = 4
"""Offset of an argument's upper half: both processors are little endian."""

MAX_INSTRUCTIONS: Final = 4096
"""The kernel's limit."""
_MAX_JUMP: Final = 255
OTHER_TABLE: Final = 0x4000_0000
"""The bit in the numbers of x86-64's second table of calls (x32), which no other call has."""


class ArgIn(NamedTuple):
    """An argument must be one of some values. The kernel reads 32 bits of it."""

    argument: int
    values: tuple[int, ...]


class ArgLacks(NamedTuple):
    """An argument must have none of some bits, which are among its lower 32."""

    argument: int
    bits: int


class ArgNull(NamedTuple):
    """An argument, all 64 bits of it, must be 0: a null pointer."""

    argument: int


ArgTest = ArgIn | ArgLacks | ArgNull
SyscallRules = Mapping[str, Sequence[ArgTest]]
"""Allowed calls by name, with tests that must all hold; frequent calls first."""


class _Step(NamedTuple):
    """An instruction; a jump continues at the label that it names, or at the next one."""

    code: int
    value: int
    yes: str = ""
    no: str = ""


_Line = _Step | str
"""An instruction, or a label before one."""


def build_filter(
    architecture: int,
    numbers: Mapping[str, int],
    rules: SyscallRules,
    enosys: Iterable[str] = (),
    *,
    allows_others: bool = False,
) -> bytes:
    """Assemble a filter, 8 bytes per instruction.

    Args:
        architecture: whose calls are allowed; those of all others are refused.
        numbers: of its calls. A rule for a call that it does not have is skipped.
        rules: the allowed calls; the rest fails with ``EPERM``.
        enosys: calls that fail with ``ENOSYS``, as on a kernel that lacks them.
        allows_others: whether calls without a rule are allowed, instead of refused.

    Raises:
        ValueError: there are more instructions than the kernel takes.
    """
    lines: list[_Line] = [
        _Step(LOAD, ARCHITECTURE_AT),
        _Step(JUMP_IF_EQUAL, architecture, yes="ours"),
        _Step(RETURN, REFUSE_EPERM),
        "ours",
        _Step(LOAD, NUMBER_AT),
        _Step(JUMP_IF_ANY_BIT, OTHER_TABLE, no="our table"),
        _Step(RETURN, REFUSE_EPERM),
        "our table",
    ]
    code = _assemble(lines)
    for name, tests in rules.items():
        if name in numbers:
            code += _assemble(_rule(numbers[name], tests))
    for name in enosys:
        code += _assemble(_return_if(numbers[name], REFUSE_ENOSYS))
    code += _assemble([_Step(RETURN, ALLOW if allows_others else REFUSE_EPERM)])
    if len(code) > MAX_INSTRUCTIONS * 8:
        raise ValueError(f"a filter of over {MAX_INSTRUCTIONS} instructions")
    return code


def _return_if(number: int, answer: int) -> Iterator[_Line]:
    yield _Step(JUMP_IF_EQUAL, number, no="another")
    yield _Step(RETURN, answer)
    yield "another"


def _rule(number: int, tests: Sequence[ArgTest]) -> Iterator[_Line]:
    """Assemble a rule; the call's number is loaded before it, and still is after it."""
    if not tests:
        yield from _return_if(number, ALLOW)
        return
    yield _Step(JUMP_IF_EQUAL, number, no="another")
    for index, test in enumerate(tests):
        yield from _test(test, f"passed {index}")
    yield _Step(RETURN, ALLOW)
    yield "refused"
    yield _Step(RETURN, REFUSE_EPERM)
    yield "another"


def _test(test: ArgTest, passed: str) -> Iterator[_Line]:
    """Continue after a test that holds; jump to "refused" otherwise."""
    at = _ARGUMENTS_AT + test.argument * _ARGUMENT_BYTES
    yield _Step(LOAD, at)
    match test:
        case ArgIn(values=values):
            for value in values[:-1]:
                yield _Step(JUMP_IF_EQUAL, value, yes=passed)
            yield _Step(JUMP_IF_EQUAL, values[-1], no="refused")
        case ArgLacks(bits=bits):
            yield _Step(JUMP_IF_ANY_BIT, bits, yes="refused")
        case ArgNull():
            yield _Step(JUMP_IF_EQUAL, 0, no="refused")
            yield _Step(LOAD, at + _HIGH_AT)
            yield _Step(JUMP_IF_EQUAL, 0, no="refused")
    yield passed


def _assemble(lines: Iterable[_Line]) -> bytes:
    """Resolve labels to offsets: a jump counts the instructions that it skips."""
    steps: list[_Step] = []
    offsets: dict[str, int] = {}
    for line in lines:
        if isinstance(line, str):
            offsets[line] = len(steps)
        else:
            steps.append(line)
    code = b""
    for index, step in enumerate(steps):
        jumps = [
            offsets[label] - index - 1 if label else 0 for label in (step.yes, step.no)
        ]
        if not 0 <= min(jumps) <= max(jumps) <= _MAX_JUMP:
            raise ValueError("a jump that is too long")
        code += struct.pack("=HBBI", step.code, *jumps, step.value)
    return code
