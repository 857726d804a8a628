"""Filters of system calls, written as the kernel runs them: classic BPF.

A filter is a chain of rules, one for each call that it allows. A rule of a call looks at
its arguments where not every use of the call is allowed. What no rule allows is refused.
Jumps lead only forward, to labels inside their own rule, so that no rule depends on what
stands before or behind it.
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
REFUSE: Final = 0x0005_0000 | errno.EPERM
PRETEND: Final = 0x0005_0000 | errno.ENOSYS

NUMBER_AT: Final = 0
ARCHITECTURE_AT: Final = 4
_ARGUMENTS_AT: Final = 16
_ARGUMENT_BYTES: Final = 8
_HIGH_AT: Final = 4
"""Where in an argument its upper half is: both processors have the lower one first."""

MAX_INSTRUCTIONS: Final = 4096
"""The kernel takes no more."""
_MAX_JUMP: Final = 255


class Is(NamedTuple):
    """An argument has to be one of some values. Of it the kernel reads 32 bits."""

    argument: int
    values: tuple[int, ...]


class Lacks(NamedTuple):
    """An argument may have none of some bits, which are among its lower 32."""

    argument: int
    bits: int


class IsNull(NamedTuple):
    """An argument, all 64 bits of it, has to be 0: a pointer to nothing."""

    argument: int


Test = Is | Lacks | IsNull
Rules = Mapping[str, Sequence[Test]]
"""What is allowed: names of calls, and tests that all have to hold; hot ones first."""


class _Step(NamedTuple):
    """An instruction; a jump goes on behind the label that it names, or at the next."""

    code: int
    value: int
    yes: str = ""
    no: str = ""


_Line = _Step | str
"""An instruction, or a label before one."""


def write(
    architecture: int,
    numbers: Mapping[str, int],
    rules: Rules,
    pretended: Iterable[str] = (),
) -> bytes:
    """Write a filter, 8 bytes an instruction.

    Args:
        architecture: whose calls are allowed; those of all others are refused.
        numbers: of its calls. A rule for a call that it does not have is left out.
        rules: what is allowed; the rest fails with ``EPERM``.
        pretended: calls that fail with ``ENOSYS``, as if the kernel had none of them.

    Raises:
        ValueError: there are too many rules for the kernel.
    """
    lines: list[_Line] = [
        _Step(LOAD, ARCHITECTURE_AT),
        _Step(JUMP_IF_EQUAL, architecture, yes="ours"),
        _Step(RETURN, REFUSE),
        "ours",
        _Step(LOAD, NUMBER_AT),
    ]
    code = _assembled(lines)
    for name, tests in rules.items():
        if name in numbers:
            code += _assembled(_rule(numbers[name], tests))
    for name in pretended:
        code += _assembled(_answer(numbers[name], PRETEND))
    code += _assembled([_Step(RETURN, REFUSE)])
    if len(code) > MAX_INSTRUCTIONS * 8:
        raise ValueError(f"a filter of over {MAX_INSTRUCTIONS} instructions")
    return code


def _answer(number: int, answer: int) -> Iterator[_Line]:
    yield _Step(JUMP_IF_EQUAL, number, no="another")
    yield _Step(RETURN, answer)
    yield "another"


def _rule(number: int, tests: Sequence[Test]) -> Iterator[_Line]:
    """Write a rule, which finds the call's number loaded and leaves it so for the next."""
    if not tests:
        yield from _answer(number, ALLOW)
        return
    yield _Step(JUMP_IF_EQUAL, number, no="another")
    for place, test in enumerate(tests):
        yield from _test(test, f"held {place}")
    yield _Step(RETURN, ALLOW)
    yield "refused"
    yield _Step(RETURN, REFUSE)
    yield "another"


def _test(test: Test, held: str) -> Iterator[_Line]:
    """Go on behind a test that holds, else where calls are refused."""
    at = _ARGUMENTS_AT + test.argument * _ARGUMENT_BYTES
    yield _Step(LOAD, at)
    match test:
        case Is(values=values):
            for value in values[:-1]:
                yield _Step(JUMP_IF_EQUAL, value, yes=held)
            yield _Step(JUMP_IF_EQUAL, values[-1], no="refused")
        case Lacks(bits=bits):
            yield _Step(JUMP_IF_ANY_BIT, bits, yes="refused")
        case IsNull():
            yield _Step(JUMP_IF_EQUAL, 0, no="refused")
            yield _Step(LOAD, at + _HIGH_AT)
            yield _Step(JUMP_IF_EQUAL, 0, no="refused")
    yield held


def _assembled(lines: Iterable[_Line]) -> bytes:
    """Put numbers in place of labels: jumps count the instructions that they leave out."""
    steps: list[_Step] = []
    places: dict[str, int] = {}
    for line in lines:
        if isinstance(line, str):
            places[line] = len(steps)
        else:
            steps.append(line)
    code = b""
    for place, step in enumerate(steps):
        jumps = [
            places[label] - place - 1 if label else 0 for label in (step.yes, step.no)
        ]
        if not 0 <= min(jumps) <= max(jumps) <= _MAX_JUMP:
            raise ValueError("a jump that is too long")
        code += struct.pack("=HBBI", step.code, *jumps, step.value)
    return code
