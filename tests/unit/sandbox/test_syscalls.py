import platform
import re
import subprocess
import sys

import pytest

from inferd.sandbox.syscalls import MACHINES, syscall_numbers, this_machine

OF_32_BITS = re.compile(r".*_time64|clock_[a-z]*64|timerfd?_[a-z]*64")
"""Numbers of the generic table that processors of 64 bits leave out."""
OF_OTHERS = {"arch_specific_syscall", "syscalls", "sync_file_range2"}


def defined(header: str) -> dict[str, int]:
    """Ask the machine's own headers, as the compiler reads them."""
    done = subprocess.run(
        ["cc", "-E", "-dM", "-"],
        input=f"#define __ARCH_WANT_RENAMEAT\n#define __ARCH_WANT_NEW_STAT\n"
        f"#define __ARCH_WANT_SET_GET_RLIMIT\n#define __ARCH_WANT_SYS_CLONE3\n"
        f"#define __ARCH_WANT_MEMFD_SECRET\n#include <{header}>\n",
        capture_output=True,
        text=True,
        check=True,
    )
    names: list[tuple[str, str]] = re.findall(r"#define __NR_(\w+) (\w+)", done.stdout)
    others: list[tuple[str, str]] = re.findall(
        r"#define (__NR3264_\w+) (\d+)", done.stdout
    )
    aliases = dict(others)
    return {
        name: int(aliases.get(value, value))
        for name, value in names
        if name not in OF_OTHERS and not OF_32_BITS.fullmatch(name)
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")],
)
def test_the_table_has_what_the_kernel_s_headers_have(machine, header):
    if machine == "x86_64" and platform.machine() != "x86_64":
        header = "asm/unistd.h"
        machine = platform.machine()
    expected = defined(header)
    table = syscall_numbers(MACHINES[machine])
    assert len(expected) > 300
    assert {name: table.get(name) for name in expected} == expected
    newer = {name: number for name, number in table.items() if name not in expected}
    others = {335, 336}  # two of x86-64 have taken numbers that were left out
    assert all(each > max(expected.values()) for each in {*newer.values()} - others)


@pytest.mark.parametrize("machine", MACHINES.values())
def test_no_number_is_given_twice(machine):
    table = syscall_numbers(machine)
    assert len(table) == len({*table.values()})


def test_a_processor_that_is_not_known_has_no_numbers(monkeypatch):
    assert this_machine() is MACHINES.get(platform.machine())
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert this_machine() is None
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)  # its calls are those of i386
    assert this_machine() is None
