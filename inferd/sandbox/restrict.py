"""Restrict files and system calls as far as the kernel can, and report the rest."""

from collections.abc import Callable

from inferd.sandbox import landlock, seccomp
from inferd.sandbox.bpf import SyscallRules


def restrict_files(restrict: Callable[[], int]) -> tuple[int, tuple[str, ...]]:
    """Restrict files; return Landlock's version, and a message for what is missing.

    Args:
        restrict: restricts them, and returns the version; 0 if there is none.
    """
    try:
        version = restrict()
    except OSError as error:  # a seccomp filter around this process
        return 0, (f"Landlock: {error.strerror}",)
    return version, () if version else (landlock.unavailable_message(),)


def restrict_syscalls(rules: SyscallRules) -> tuple[str, ...]:
    """Restrict system calls to these; return a message for what is missing."""
    try:
        seccomp.restrict(rules)
    except seccomp.NoFilterError as error:
        return (f"seccomp: {error}",)
    return ()
