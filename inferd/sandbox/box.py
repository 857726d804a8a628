"""Give up files and system calls as far as the kernel lets a process, and tell the rest."""

from collections.abc import Callable

from inferd.sandbox import landlock, seccomp
from inferd.sandbox.bpf import Rules


def keep_to(restrict: Callable[[], int]) -> tuple[int, tuple[str, ...]]:
    """Give up files; give Landlock's version, and what is missing for that.

    Args:
        restrict: gives them up, and gives the version; 0 where there is none.
    """
    try:
        version = restrict()
    except OSError as error:  # a filter of system calls around us
        return 0, (f"Landlock: {error.strerror}",)
    return version, () if version else (landlock.missing(),)


def call_only(rules: Rules) -> tuple[str, ...]:
    """Give up all calls but these; give what is missing for that."""
    try:
        seccomp.restrict(rules)
    except seccomp.NoFilterError as error:
        return (f"seccomp: {error}",)
    return ()
